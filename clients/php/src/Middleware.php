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
    ) {
        if (($policy === null) === ($limits === null)) {
            throw new \InvalidArgumentException('a middleware has a policy, or limits');
        }
        if (!in_array($headers, ['ietf', 'legacy', 'both', 'none'], true)) {
            throw new \InvalidArgumentException("headers is ietf, legacy, both or none, not $headers");
        }
        $this->limits = $limits ?? [new Limit(policy: $policy, key: $key)];
        foreach ([$onError, ...array_map(static fn (Limit $limit): mixed => $limit->onError, $this->limits)] as $rule) {
            if (!in_array($rule, ['allow', 'deny', null], true) && !is_callable($rule)) {
                throw new \InvalidArgumentException('onError is "allow", "deny" or a function');
            }
        }
        $this->responses = $responses ?? self::factory();
    }

    public function process(ServerRequestInterface $request, RequestHandlerInterface $handler): ResponseInterface
    {
        $isPreflight = $request->getMethod() === 'OPTIONS' && $request->hasHeader('Access-Control-Request-Method');
        if ($isPreflight || getenv('RATELIMIT_ENABLED') === '0') {
            return $handler->handle($request);
        }

        $taken = [];
        try {
            $decision = $this->decide($request, $taken);
        } catch (Unavailable $failure) {
            $this->giveBack($taken, null);
            if ($this->isDenied($failure)) {
                return $this->answer($request, null);
            }
            return $handler->handle($request);
        }
        if ($decision !== null && !$decision->allowed) {
            $this->giveBack($taken, null);
            return $this->answer($request, $decision);
        }

        try {
            $response = $handler->handle($request);
        } catch (\Throwable $failure) {
            $this->giveBack($taken, null);
            throw $failure;
        }
        $this->giveBack($taken, $response);
        foreach ($decision === null ? [] : Http::headers($decision, $this->headers, $this->reset) as [$name, $value]) {
            $earlier = $response->getHeaderLine($name);
            $isList = str_starts_with($name, 'RateLimit');
            $response = $response->withHeader($name, $isList && $earlier !== '' ? "$earlier, $value" : $value);
        }
        return $response;
    }

    /**
     * The decision of all limits; null where none applies. Slots and reservations come first, because they can be given back
     * where one of the others denies.
     *
     * @param list<array{Limit, Slot|Reservation}> $taken what to give back afterwards
     */
    private function decide(ServerRequestInterface $request, array &$taken): ?Decision
    {
        $items = [];
        $decision = null;
        foreach ($this->limits as $limit) {
            $key = $limit->skip !== null && ($limit->skip)($request) ? null : self::keyOf($limit, $request);
            if ($key === null) {
                continue;
            }
            if (!$limit->slot && $limit->chargeWhen === null) {
                $cost = is_callable($limit->cost) ? ($limit->cost)($request) : $limit->cost;
                $items[serialize([$limit->asked, $key])] ??= [$limit->asked, $key, $cost];
                continue;
            }
            [$decision, $thing] = $limit->slot ? $this->client->acquire($limit->asked, $key)
                : $this->client->reserve($limit->asked, $key, 1);
            if ($thing === null) {
                return $decision;
            }
            $taken[] = [$limit, $thing];
        }

        $items = array_values($items);
        return match (count($items)) {
            0 => $decision,
            1 => $this->client->check($items[0][0], $items[0][1], $items[0][2], maxWaitMs: 0),
            default => $this->client->checkAll($items),
        };
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
     * @param list<array{Limit, Slot|Reservation}> $taken
     * @param ?ResponseInterface $response null: the request was not answered by its handler
     */
    private function giveBack(array $taken, ?ResponseInterface $response): void
    {
        foreach ($taken as [$limit, $thing]) {
            $end = match (true) {
                $thing instanceof Slot => static fn () => $thing->release(),
                $response !== null && ($limit->chargeWhen)($response) => static fn () => $thing->settle(1),
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

    private function isDenied(Unavailable $failure): bool
    {
        $rules = [];
        foreach ($this->limits as $limit) {
            $rule = $limit->onError ?? $this->onError;
            $rules[] = is_callable($rule) && !is_string($rule) ? $rule($failure) : $rule;
        }
        $isDenied = in_array('deny', $rules, true);
        $this->report($failure->getMessage() . ($isDenied ? '; the request is denied' : '; the request is let through'));
        return $isDenied;
    }

    private function report(string $text): void
    {
        if (time() < self::$logAt) {
            return;
        }
        self::$logAt = time() + self::LOG_EVERY_S;
        $this->log === null ? error_log("ratelimitd: $text") : ($this->log)($text);
    }

    private function answer(ServerRequestInterface $request, ?Decision $decision): ResponseInterface
    {
        $accept = $request->hasHeader('Accept') ? $request->getHeaderLine('Accept') : null;
        [$status, $fields, $body] = Http::denial($decision, $accept, $this->headers, $this->reset);
        $response = $this->responses->createResponse($status);
        foreach ($fields as [$name, $value]) {
            $response = $response->withHeader($name, $value);
        }
        $response->getBody()->write($body);
        return $response;
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
