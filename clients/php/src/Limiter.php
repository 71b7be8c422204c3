<?php

declare(strict_types=1);

namespace Ratelimitd;

/**
 * What counts for all limits of an application, and how a request is admitted: the same for every middleware.
 *
 * All plain limits of one place are one check_all, so nothing is charged when one denies. Limits that hold something until
 * later come first, because they can be given back.
 */
final class Limiter
{
    private const LOG_EVERY_MS = 10_000;
    private const ONCE_MS = 86_400_000; // PHP-FPM has no start to write a line at: once a day
    private const SHARED_SERVICES = ['', 'app', 'main', '__main__', 'Laravel', 'laravel/laravel', 'symfony/skeleton'];

    private readonly bool $isEnabled;
    /** @var array<string, string> services by the framework's name for the application */
    private array $services = [];

    /**
     * @param ?callable $key of the request; default: Key::ip()
     * @param string|callable $onError what happens without an answer: 'allow', 'deny' (503), or a function of the failure
     *     that returns one of them
     * @param string $headers ietf, legacy, both or none
     * @param string $reset delta or epoch, of the legacy form
     * @param ?callable $respond of the request and the decision: the answer to a denied request; default: the 429
     * @param ?string $service stands in front of the keys of limits that are written at an endpoint; '': nothing does. Default:
     *     RATELIMIT_SERVICE, OTEL_SERVICE_NAME, the framework's or Composer's name of the application
     * @param ?callable $log of a line of text; default: error_log
     */
    public function __construct(
        public readonly Client $client,
        public readonly mixed $key = null,
        private readonly mixed $onError = 'allow',
        public readonly string $headers = 'ietf',
        public readonly string $reset = 'delta',
        public readonly mixed $respond = null,
        private readonly ?string $service = null,
        private readonly mixed $log = null,
        bool $enabled = true,
    ) {
        Limit::checkForm($headers);
        Limit::checkRule($onError);
        foreach (['key' => $key, 'respond' => $respond, 'log' => $log] as $name => $function) {
            Limit::checkFunction($name, $function);
        }
        if (!in_array($reset, ['delta', 'epoch'], true)) {
            throw new \InvalidArgumentException("reset is delta or epoch, not $reset");
        }
        $isOff = getenv('RATELIMIT_ENABLED') === '0';
        $this->isEnabled = $enabled && !$isOff;
        if (!$this->isEnabled && Shared::isTime('said.disabled', self::ONCE_MS)) {
            $this->write(($isOff ? 'RATELIMIT_ENABLED=0' : 'enabled: false') . ': no request is limited');
        }
    }

    /** For a deployment's checks: throws Refused, naming what the daemon does not have or does not allow. */
    public function verify(Limit ...$limits): void
    {
        $names = array_filter(array_map(static fn (Limit $limit): mixed => $limit->policy, $limits), is_string(...));
        $inline = array_filter($limits, static fn (Limit $limit): bool => $limit->isInline());
        $this->client->verify(array_values($names), $inline !== []);
    }

    /**
     * @param list<Limit> $limits
     * @param ?string $endpoint the handler's name or the route's pattern; never what the client wrote
     * @param ?string $own the framework's name for the application
     * @internal for the middlewares
     */
    public function admit(array $limits, object $request, ?string $endpoint, Visit $visit, ?string $own = null): Admission
    {
        $admission = new Admission($this);
        if (!$this->isEnabled) {
            return $admission;
        }
        foreach ($limits as $limit) {
            $admission->lacksKey || $this->prepare($limit, $request, $endpoint, $own, $visit, $admission);
        }
        if ($admission->lacksKey) {
            $admission->asked = [];
        }
        $visit->admissions[] = $admission;

        try {
            $admission->lacksKey || $this->decide($admission);
        } catch (Unavailable $failure) {
            $admission->end();
            $this->judge($failure, $admission);
        } catch (\Throwable $failure) {
            $admission->end();
            throw $failure;
        }
        if ($admission->isRefused()) {
            $admission->end();
            foreach ($admission->asked as $asked) {
                $asked->isReturned = true;
            }
            $this->giveBackEarlier($visit);
        }
        self::tellTracer($visit);
        return $admission;
    }

    /** @internal */
    public function quietly(callable $work): void
    {
        try {
            $work();
        } catch (Unavailable $failure) { // a reservation ends with its time limit
            $this->report($failure->getMessage());
        }
    }

    /**
     * The key as it is sent: SERVICE|ENDPOINT|KEY if the settings of the limit stand at the endpoint.
     *
     * @internal
     */
    public static function keyFor(string|array $policy, string $service, ?string $endpoint, string $key): string
    {
        if (is_string($policy)) {
            return $key;
        }
        if (($endpoint ?? '') === '') {
            throw new \LogicException('a limit of its own, such as "10/5s", counts for an endpoint: name it by `endpoint`');
        }
        return ($service === '' ? Key::join($endpoint) : Key::join($service, $endpoint)) . "|$key";
    }

    /**
     * @return array{string, string} the service, and where its name comes from
     * @internal
     */
    public static function serviceName(?string $option, ?string $own): array
    {
        $fromEnvironment = static fn (string $name): ?string => getenv($name) === false ? null : getenv($name);
        $found = [
            'the option service' => $option,
            'RATELIMIT_SERVICE' => $fromEnvironment('RATELIMIT_SERVICE'),
            'OTEL_SERVICE_NAME' => $fromEnvironment('OTEL_SERVICE_NAME'),
            "the application's name" => $own,
        ];
        foreach ($found as $source => $name) {
            if ($name !== null) {
                return [$name, $source];
            }
        }
        return ['', 'nothing gives it a name'];
    }

    /** What this limit comes to for this request: a member of $admission->asked, or nothing. */
    private function prepare(Limit $limit, object $request, ?string $endpoint, ?string $own, Visit $visit, Admission $admission): void
    {
        if (!$limit->enabled || ($limit->skip !== null && ($limit->skip)($request))) {
            return;
        }
        $policy = $limit->policyFor($request);
        $key = is_string($policy) || is_array($policy) ? ($limit->key ?? $this->key ?? Key::ip())($request) : $policy;
        if ($key === Limit::NOT_LIMITED) {
            return;
        }
        if ($key !== null && !is_string($key) && !is_int($key)) {
            throw new \UnexpectedValueException('the key of a limit is a text, NOT_LIMITED or null, not ' . get_debug_type($key));
        }
        $key = (string) $key;
        $name = $limit->endpoint ?? $endpoint;
        if ($key === '') {
            $this->sayNothingGiven($policy === null ? 'no policy' : 'no key', $limit, $name);
            $admission->lacksKey = $limit->onError !== 'allow';
            return;
        }
        if (is_array($policy)) {
            $key = self::keyFor($policy, $this->serviceFor($own), $name, $key);
            $policy = $limit->isMoving() ? Limit::withId($policy, $name, $visit->countMoving($name)) : $policy;
        }
        $this->add(new Asked($limit, $policy, $key, $limit->costFor($request), $this), $visit, $admission);
    }

    /** Ask for it, unless this request is charged for it already. The highest cost counts. */
    private function add(Asked $asked, Visit $visit, Admission $admission): void
    {
        foreach ($admission->asked as $one) {
            if ($one->id === $asked->id) {
                $one->cost = max($one->cost, $asked->cost);
                if ($asked->limit->slot || ($one->limit->chargeWhen !== null && $asked->limit->chargeWhen === null)) {
                    $one->limit = $asked->limit;
                }
                return;
            }
        }
        $charged = 0;
        foreach ($visit->asked() as $one) {
            if ($one->id === $asked->id) {
                if ($one->slot !== null && $asked->limit->slot) {
                    return;
                }
                $charged += $one->charged();
                $one->isCertain = $one->isCertain || $asked->limit->chargeWhen === null;
            }
        }
        if ($charged > 0 && !$asked->limit->slot) {
            $asked->cost -= $charged;
        }
        if ($asked->cost > 0 || $charged === 0) {
            $admission->asked[] = $asked;
        }
    }

    /** @param string $what "no key" or "no policy" */
    private function sayNothingGiven(string $what, Limit $limit, ?string $endpoint): void
    {
        $name = $endpoint ?? (is_string($limit->policy) ? $limit->policy : 'an endpoint');
        if (Shared::isTime('said.nothing.' . md5("$what $name"), self::ONCE_MS)) {
            $follows = $limit->onError === 'allow' ? 'this limit is left out' : 'such requests are answered 503';
            $this->write("$what for a limit of $name: $follows (NOT_LIMITED switches a limit off)");
        }
    }

    /** @internal */
    public function sayUncharged(int $units): void
    {
        if (Shared::isTime('said.uncharged', self::ONCE_MS)) {
            $this->write("chargeWhen of a limit gave $units units, of which not all were left; only a policy with debt charges more");
        }
    }

    // ---- what earlier places charged

    /** This place refuses, so earlier ones charge nothing either, where their policies can give back. */
    private function giveBackEarlier(Visit $visit): void
    {
        $charged = [];
        foreach ($visit->admissions as $admission) {
            foreach ($admission->asked as $asked) {
                if (!$asked->isReturned && $asked->reservation === null && !$asked->isCharged && $asked->slot === null) {
                    $charged[$asked->id][] = $asked;
                }
            }
            $admission->end();
            foreach ($admission->asked as $asked) {
                $asked->isReturned = $asked->isReturned || $asked->reservation === null && !isset($charged[$asked->id]);
            }
        }
        foreach ($charged as $same) {
            self::refund($same);
        }
    }

    /** @param non-empty-list<Asked> $same what several places charged to one counter */
    private static function refund(array $same): void
    {
        $units = 0;
        foreach ($same as $asked) {
            $units += $asked->decision?->isCounted() ? $asked->charged() : 0;
            $asked->isReturned = true;
        }
        $limiter = $asked->limiter;
        $limiter->quietly(static function () use ($units, $asked, $limiter): void {
            if ($units === 0 || $limiter->countsDenials($asked)) {
                return;
            }
            try {
                $decision = $limiter->client->refund($asked->policy, $asked->key, $units);
                $asked->decision = $decision->of === null ? $asked->decision : $decision;
            } catch (Refused $refusal) {
                if ($refusal->rpcCode !== 'UNSUPPORTED') { // of a policy that has no units to give back
                    throw $refusal;
                }
            }
        });
    }

    /** Does the policy count denied requests? The daemon lists it; what it said holds for that version of the policy. */
    private function countsDenials(Asked $asked): bool
    {
        if (is_array($asked->policy)) {
            return in_array(true, array_column([$asked->policy, ...$asked->policy['limits'] ?? []], 'count_denied'), true);
        }
        $name = 'counts.' . md5("{$this->client->path} {$asked->policy} {$asked->decision->policyVersion}");
        $known = Shared::get($name);
        if ($known === 0) {
            $policies = array_column($this->client->policies(), null, 'name');
            $known = in_array(true, array_column($policies[$asked->policy]['limits'] ?? [], 'count_denied'), true) ? 2 : 1;
            Shared::replace($name, 0, $known);
        }
        return $known === 2;
    }

    /** Where OpenTelemetry is loaded, the request's span gets the decision that the handler gets. */
    private static function tellTracer(Visit $visit): void
    {
        $span = 'OpenTelemetry\API\Trace\Span';
        $decision = class_exists($span, false) ? $visit->decision() : null;
        if ($decision === null) {
            return;
        }
        foreach ($visit->asked() as $asked) {
            if (is_string($asked->policy) && ($asked->decision === $decision || strtok((string) $decision->of, '/') === $asked->policy)) {
                $policy = $asked->policy;
            }
        }
        $current = $span::getCurrent();
        $current->setAttribute('ratelimit.policy', $policy ?? (string) strtok((string) $decision->of, '/'));
        $current->setAttribute('ratelimit.result', $decision->allowed ? 'allowed' : 'denied');
        $current->setAttribute('ratelimit.source', $decision->source);
    }

    private function decide(Admission $admission): void
    {
        foreach ($admission->asked as $asked) {
            if ($asked->limit->isHeld()) {
                $asked->decision = $this->hold($asked);
                if (!$asked->decision->allowed) {
                    [$admission->denied, $admission->denial] = [$asked, $asked->decision];
                    return;
                }
            }
        }

        $plain = array_values(array_filter($admission->asked, static fn (Asked $asked): bool => !$asked->limit->isHeld()));
        if ($plain === []) {
            return;
        }
        $items = array_map(static fn (Asked $asked): array => [$asked->policy, $asked->key, $asked->cost], $plain);
        $decision = count($items) > 1 ? $this->client->checkAll($items) : $this->client->check(...$items[0], maxWaitMs: 0);
        foreach ($plain as $i => $asked) {
            $asked->decision = $decision->members[$i] ?? $decision;
            if (!$decision->allowed && !$asked->decision->allowed) {
                $admission->denied ??= $asked;
            }
        }
        if (!$decision->allowed) {
            $admission->denied ??= $plain[0];
            $admission->denial = $decision;
        }
        usleep(1000 * $decision->delayMs); // check_all cannot ask for a denial instead
    }

    private function hold(Asked $asked): Decision
    {
        if ($asked->limit->slot) {
            [$decision, $asked->slot] = $this->client->acquire($asked->policy, $asked->key);
        } elseif (is_string($asked->policy) || $this->client->has('reserve_inline')) {
            [$decision, $asked->reservation] = $this->client->reserve($asked->policy, $asked->key, $asked->cost);
        } else {
            $decision = $this->client->check($asked->policy, $asked->key, $asked->cost, maxWaitMs: 0);
            $asked->isCharged = $decision->allowed;
        }
        return $decision;
    }

    /** No decision was made: the strictest of the limits counts. */
    private function judge(Unavailable $failure, Admission $admission): void
    {
        foreach ($admission->asked as $asked) {
            $asked->decision = null;
            $rule = $asked->limit->onError ?? $this->onError;
            $verdict = in_array($rule, ['allow', 'deny'], true) ? $rule : $rule($failure);
            if (!in_array($verdict, ['allow', 'deny'], true)) {
                throw new \UnexpectedValueException('onError gave ' . var_export($verdict, true) . ', not "allow" or "deny"');
            }
            $admission->isUnavailable = $admission->isUnavailable || $verdict === 'deny';
        }
        $this->report($failure->getMessage() . ($admission->isUnavailable ? '; requests are answered 503' : '; requests pass'));
    }

    private function serviceFor(?string $own): string
    {
        $known = $own ?? '';
        if (!isset($this->services[$known])) {
            [$service, $source] = self::serviceName($this->service, $own ?? self::nameOfComposer());
            $this->services[$known] = $service;
            if (Shared::isTime('said.service.' . md5($service), self::ONCE_MS)) {
                $isShared = in_array($service, self::SHARED_SERVICES, true);
                $this->write(($isShared ? 'WARNING: ' : '') . "limits at endpoints count for the service \"$service\" ($source)"
                    . ($isShared ? ': programs with the same name share their counters; set RATELIMIT_SERVICE' : ''));
            }
        }
        return $this->services[$known];
    }

    private static function nameOfComposer(): ?string
    {
        $class = 'Composer\InstalledVersions';
        $name = class_exists($class) ? $class::getRootPackage()['name'] ?? null : null;
        return $name === '__root__' ? null : $name;
    }

    /** At most one line in ten seconds, from all workers together. */
    private function report(string $text): void
    {
        if (Shared::isTime('said.failure', self::LOG_EVERY_MS)) {
            $this->write("no decision from the rate limiter: $text");
        }
    }

    private function write(string $line): void
    {
        $this->log === null ? error_log("ratelimitd: $line") : ($this->log)($line);
    }
}
