<?php

declare(strict_types=1);

namespace Ratelimitd;

use Psr\Http\Message\ResponseFactoryInterface;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Server\MiddlewareInterface;
use Psr\Http\Server\RequestHandlerInterface;

/**
 * PSR-15 middleware: answers 429 where the daemon denies, and adds the RateLimit fields to every other answer.
 *
 * Several limits are charged together or not at all. A mistake in the configuration (an unknown policy, an empty key) throws.
 */
final class Middleware implements MiddlewareInterface
{
    private const FACTORIES = [
        'Nyholm\Psr7\Factory\Psr17Factory', 'GuzzleHttp\Psr7\HttpFactory', 'Slim\Psr7\Factory\ResponseFactory',
        'Laminas\Diactoros\ResponseFactory', 'HttpSoft\Message\ResponseFactory',
    ];
    private const LOG_EVERY_S = 10;

    /** @var Limit[] */
    private readonly array $limits;
    private readonly ResponseFactoryInterface $responses;
    private static int $logAt = 0;

    /**
     * @param ?string $policy one policy, in place of $limits
     * @param ?callable $key of that policy; default: Key::ip()
     * @param string|callable $onError what happens without an answer: 'allow', 'deny' (503), or a function of the failure
     *     that returns one of them
     * @param string $headers ietf, legacy, both or none
     * @param ?callable $respond of the request and the decision: the answer to a denied request; default: the 429
     * @param string $reset delta or epoch, of the legacy form
     * @param ?ResponseFactoryInterface $responses default: that of the PSR-7 library that is there
     * @param ?callable $log of a line of text; default: error_log
     */
    public function __construct(
        private readonly Client $client,
        ?string $policy = null,
        ?callable $key = null,
        ?array $limits = null,
        private readonly mixed $onError = 'allow',
        private readonly string $headers = 'ietf',
        private readonly string $reset = 'delta',
        ?ResponseFactoryInterface $responses = null,
        private readonly mixed $log = null,
        private readonly mixed $respond = null,
    ) {
        if (($policy === null) === ($limits === null)) {
            throw new \InvalidArgumentException('a middleware has a policy, or limits');
        }
        Limit::checkForm($headers);
        Limit::checkRule($onError);
        if (!in_array($reset, ['delta', 'epoch'], true)) {
            throw new \InvalidArgumentException("reset is delta or epoch, not $reset");
        }
        $this->limits = $limits ?? [new Limit(policy: $policy, key: $key)];
        $this->responses = $responses ?? self::factory();
    }

    public function process(ServerRequestInterface $request, RequestHandlerInterface $handler): ResponseInterface
    {
        $isPreflight = $request->getMethod() === 'OPTIONS' && $request->hasHeader('Access-Control-Request-Method');
        if ($isPreflight || getenv('RATELIMIT_ENABLED') === '0') {
            return $handler->handle($request);
        }

        $asked = $this->asked($request);
        $taken = [];
        $decided = [];
        try {
            $this->decide($asked, $taken, $decided);
        } catch (Unavailable $failure) {
            $this->giveBack($taken, null);
            if ($this->isDenied($failure, $asked)) {
                return $this->answer($request, null, []);
            }
            return $handler->handle($request);
        }
        [$decision, $limits] = end($decided) ?: [null, []];
        if ($decision !== null && !$decision->allowed) {
            $this->giveBack($taken, null);
            return $this->answer($request, $decision, $limits);
        }

        try {
            $response = $handler->handle($request);
        } catch (\Throwable $failure) {
            $this->giveBack($taken, null);
            throw $failure;
        }
        $this->giveBack($taken, $response);
        foreach ($decided as [$decision, $limits]) {
            foreach (Http::headers($decision, $this->forms($limits), $this->reset) as [$name, $value]) {
                $earlier = $response->getHeaderLine($name);
                $isList = str_starts_with($name, 'RateLimit');
                $response = $response->withHeader($name, $isList && $earlier !== '' ? "$earlier, $value" : $value);
            }
        }
        return $response;
    }

    /**
     * The limits that apply to a request, each policy and key once.
     *
     * @return list<array{Limit, string, int}> with key and cost
     */
    private function asked(ServerRequestInterface $request): array
    {
        $asked = [];
        foreach ($this->limits as $limit) {
            if (!$limit->enabled || ($limit->skip !== null && ($limit->skip)($request))) {
                continue;
            }
            $key = self::keyOf($limit, $request);
            if ($key !== null) {
                $cost = is_callable($limit->cost) ? ($limit->cost)($request) : $limit->cost;
                $asked[serialize([$limit->asked, $key, $limit->isHeld()])] ??= [$limit, $key, $cost];
            }
        }
        return array_values($asked);
    }

    /**
     * Asks until a limit denies. Slots and reservations come first, because they can be given back where one of the others
     * denies.
     *
     * @param list<array{Limit, string, int}> $asked
     * @param list<array{Limit, Slot|Reservation, int}> $taken what to give back afterwards
     * @param list<array{Decision, list<Limit>}> $decided with the limit of each member, or the only one
     */
    private function decide(array $asked, array &$taken, array &$decided): void
    {
        $plain = [];
        foreach ($asked as [$limit, $key, $cost]) {
            if (!$limit->isHeld()) {
                $plain[] = [$limit, $key, $cost];
                continue;
            }
            [$decision, $thing] = $limit->slot ? $this->client->acquire($limit->asked, $key)
                : $this->client->reserve($limit->asked, $key, $cost);
            $decided[] = [$decision, [$limit]];
            if ($thing === null) {
                return;
            }
            $taken[] = [$limit, $thing, $cost];
        }

        $limits = array_column($plain, 0);
        $items = array_map(static fn (array $one): array => [$one[0]->asked, $one[1], $one[2]], $plain);
        if (count($items) === 1) {
            $decided[] = [$this->client->check($items[0][0], $items[0][1], $items[0][2], maxWaitMs: 0), $limits];
        } elseif ($items !== []) {
            $decision = $this->client->checkAll($items);
            $decided[] = [$decision, $limits];
            usleep(1000 * $decision->delayMs); // check_all cannot ask for a denial instead
        }
    }

    /**
     * @param list<Limit> $limits
     * @return list<string> the form of the header fields of each
     */
    private function forms(array $limits): array
    {
        return array_map(fn (Limit $limit): string => $limit->headers ?? $this->headers, $limits);
    }

    private static function keyOf(Limit $limit, ServerRequestInterface $request): ?string
    {
        $key = ($limit->key ?? Key::ip())($request);
        if ($key === '') {
            throw new \UnexpectedValueException('the key of a limit is empty');
        }
        return $key === null || is_string($limit->asked) ? $key : Key::join($limit->name) . "|$key";
    }

    /**
     * @param list<array{Limit, Slot|Reservation, int}> $taken
     * @param ?ResponseInterface $response null: the request was not answered by its handler
     */
    private function giveBack(array $taken, ?ResponseInterface $response): void
    {
        foreach ($taken as [$limit, $thing, $cost]) {
            $end = match (true) {
                $thing instanceof Slot => static fn () => $thing->release(),
                $response !== null && ($limit->chargeWhen)($response) => static fn () => $thing->settle($cost),
                default => static fn () => $thing->cancel(),
            };
            // The body of an answer is sent when this middleware is done; only a server that lives on has no end to wait for.
            if ($thing instanceof Slot && $response !== null && PHP_SAPI !== 'cli') {
                register_shutdown_function($this->quietly(...), $end);
            } else {
                $this->quietly($end);
            }
        }
    }

    private function quietly(callable $end): void
    {
        try {
            $end();
        } catch (Unavailable $failure) {
            $this->report($failure->getMessage()); // a slot ends with its connection, a reservation with its time limit
        }
    }

    /** @param list<array{Limit, string, int}> $asked the strictest of them decides */
    private function isDenied(Unavailable $failure, array $asked): bool
    {
        $isDenied = false;
        foreach ($asked as [$limit]) {
            $rule = $limit->onError ?? $this->onError;
            $verdict = in_array($rule, ['allow', 'deny'], true) ? $rule : $rule($failure);
            if (!in_array($verdict, ['allow', 'deny'], true)) {
                throw new \UnexpectedValueException('onError gave ' . var_export($verdict, true) . ', not "allow" or "deny"');
            }
            $isDenied = $isDenied || $verdict === 'deny';
        }
        $this->report($failure->getMessage() . ($isDenied ? '; the request is denied' : '; the request is let through'));
        return $isDenied;
    }

    /** At most one line in ten seconds. PHP-FPM forgets static variables with each request, APCu does not. */
    private function report(string $text): void
    {
        $isFirst = function_exists('apcu_add') ? apcu_add('ratelimitd.logged', true, self::LOG_EVERY_S) : time() >= self::$logAt;
        if (!$isFirst) {
            return;
        }
        self::$logAt = time() + self::LOG_EVERY_S;
        $this->log === null ? error_log("ratelimitd: $text") : ($this->log)($text);
    }

    /** @param list<Limit> $limits that the decision is about */
    private function answer(ServerRequestInterface $request, ?Decision $decision, array $limits): ResponseInterface
    {
        $accept = $request->hasHeader('Accept') ? $request->getHeaderLine('Accept') : null;
        [$status, $fields, $body] = Http::denial($decision, $accept, $this->forms($limits), $this->reset);
        $respond = $decision === null ? null : self::denying($decision, $limits)->respond ?? $this->respond;
        $response = $respond === null ? $this->responses->createResponse($status) : $respond($request, $decision);
        foreach ($fields as [$name, $value]) {
            if ($respond === null || $name !== 'Content-Type') {
                $response = $response->withHeader($name, $value);
            }
        }
        if ($respond === null) {
            $response->getBody()->write($body);
        }
        return $response;
    }

    /** @param list<Limit> $limits */
    private static function denying(Decision $decision, array $limits): Limit
    {
        foreach ($decision->members as $i => $member) {
            if (!$member->allowed) {
                return $limits[$i];
            }
        }
        return $limits[0];
    }

    private static function factory(): ResponseFactoryInterface
    {
        foreach (self::FACTORIES as $class) {
            if (class_exists($class)) {
                return new $class();
            }
        }
        throw new \InvalidArgumentException('no PSR-17 factory found: pass one as `responses`');
    }
}
