<?php

declare(strict_types=1);

namespace Ratelimitd;

/**
 * What counts for all limits of an application, and how a request is admitted: the same for every middleware.
 *
 * All plain limits of a request are one check_all, so nothing is charged when one denies. Limits that hold something until
 * later come first, because they can be given back.
 */
final class Limiter
{
    private const LOG_EVERY_MS = 10_000;
    private const ONCE_MS = 86_400_000; // PHP-FPM has no start to write a line at: once a day

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
        if ($isOff && Shared::isTime('said.disabled', self::ONCE_MS)) {
            $this->write('RATELIMIT_ENABLED=0: no request is limited');
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
    public function admit(array $limits, object $request, ?string $endpoint, ?string $own = null): Admission
    {
        $admission = new Admission($this);
        $isPreflight = $request->getMethod() === 'OPTIONS' && Requests::lines($request, 'Access-Control-Request-Method') !== [];
        if (!$this->isEnabled || $isPreflight) {
            return $admission;
        }
        foreach ($limits as $limit) {
            $asked = $this->asked($limit, $request, $endpoint, $own);
            if ($asked !== null) { // each policy and key once
                $admission->asked[Denials::same(Denials::frozen($asked->policy), $asked->key)] ??= $asked;
            }
        }
        $admission->asked = array_values($admission->asked);

        try {
            $this->decide($admission);
        } catch (Unavailable $failure) {
            $admission->end();
            $this->judge($failure, $admission);
        } catch (\Throwable $failure) {
            $admission->end();
            throw $failure;
        }
        if ($admission->isRefused()) {
            $admission->end();
        }
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

    private function asked(Limit $limit, object $request, ?string $endpoint, ?string $own): ?Asked
    {
        if (!$limit->enabled || ($limit->skip !== null && ($limit->skip)($request))) {
            return null;
        }
        $policy = $limit->policyFor($request);
        $key = $policy === null ? null : ($limit->key ?? $this->key ?? Key::ip())($request);
        if ($key === null) {
            return null;
        }
        $key = is_string($key) || is_int($key) ? (string) $key
            : throw new \UnexpectedValueException('the key of a limit is a text or null, not ' . get_debug_type($key));
        if ($key === '') {
            throw new \UnexpectedValueException('the key of a limit is empty: give null where a request is not to be limited');
        }
        $sent = is_string($policy) ? $key : self::keyFor($policy, $this->serviceFor($own), $endpoint, $key);
        return new Asked($limit, $policy, $sent, $limit->costFor($request));
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
                $this->write("limits at endpoints count for the service \"$service\" ($source)");
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
