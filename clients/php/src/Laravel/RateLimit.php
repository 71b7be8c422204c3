<?php

declare(strict_types=1);

namespace Ratelimitd\Laravel;

use Illuminate\Http\Request;
use Illuminate\Routing\Route;
use Illuminate\Routing\Router;
use Ratelimitd\HttpFoundation;
use Ratelimitd\Limit;
use Ratelimitd\Limiter;
use Symfony\Component\HttpFoundation\Response;

/**
 * Laravel's middleware: `->middleware('ratelimitd:web')`, `ratelimitd:10/5s`, or the name of limits that RateLimit::for()
 * declares. Several, with commas between them, are charged together or not at all. The handler finds the decision in
 * $request->attributes->get('ratelimit').
 */
final class RateLimit
{
    private const HELD = 'ratelimitd.held';

    /** @var array<string, list<Limit>> */
    private static array $sets = [];

    public function __construct(private readonly Limiter $limiter)
    {
    }

    /** Limits with options, for a service provider's boot(): `ratelimitd:$name` asks for all of them. */
    public static function for(string $name, Limit|string ...$limits): void
    {
        if ($limits === [] || !preg_match('/^[\w.-]+$/D', $name)) {
            throw new \InvalidArgumentException("limits have a name without blanks, commas and colons, and are at least one: '$name'");
        }
        self::$sets[$name] = array_map(Limit::of(...), array_values($limits));
    }

    /** For a deployment's checks: throws Refused, naming the policies that the daemon does not have. */
    public static function verify(Limiter $limiter, Router $router): void
    {
        $limits = array_merge(...array_values(self::$sets));
        foreach ($router->getRoutes() as $route) {
            foreach ($router->gatherRouteMiddleware($route) as $one) {
                [$class, $names] = is_string($one) ? explode(':', $one, 2) + [1 => ''] : ['', ''];
                if ($class === self::class) {
                    array_push($limits, ...self::limitsOf($names === '' ? [] : explode(',', $names)));
                }
            }
        }
        $limiter->verify(...$limits);
    }

    public function handle(Request $request, \Closure $next, string ...$names): Response
    {
        $limits = self::limitsOf($names);
        $endpoint = self::endpointOf($request->route());
        self::refuseEqualNames($limits, $request->route());
        $admission = $this->limiter->admit($limits, $request, $endpoint, HttpFoundation::visit($request), config('app.name'));
        if ($admission->isRefused()) {
            return HttpFoundation::refusal($request, $admission);
        }

        HttpFoundation::tell($request);
        try {
            $response = $next($request);
            $admission->settle($request, $response);
        } catch (\Throwable $failure) {
            $admission->end();
            throw $failure;
        }
        $request->attributes->set(self::HELD, [...$request->attributes->get(self::HELD, []), $admission]);
        return HttpFoundation::withFields($response, $request);
    }

    /** The answer has been sent. */
    public function terminate(Request $request, Response $response): void
    {
        foreach ($request->attributes->get(self::HELD, []) as $admission) {
            $admission->end();
        }
    }

    /** @return list<Limit> */
    private static function limitsOf(array $names): array
    {
        if ($names === []) {
            throw new \InvalidArgumentException("name a limit: ->middleware('ratelimitd:web')");
        }
        return array_merge(...array_map(static fn (string $name): array => self::$sets[$name] ?? [new Limit($name)], $names));
    }

    /** The route's methods and its pattern, never what the client wrote. null: a global middleware, for policies by name only. */
    private static function endpointOf(?Route $route): ?string
    {
        if ($route === null) {
            return null;
        }
        $methods = array_diff($route->methods(), ['HEAD']);
        sort($methods);
        $isForAll = array_diff(Router::$verbs, $route->methods()) === [];
        return ($isForAll ? '' : implode(',', $methods) . ' ') . $route->getDomain() . '/' . ltrim($route->uri(), '/');
    }

    /**
     * A name that is written at one route must not be the one that another route has by itself: they would share a counter.
     *
     * @param list<Limit> $limits
     */
    private static function refuseEqualNames(array $limits, ?Route $route): void
    {
        $written = array_filter(array_map(static fn (Limit $limit): ?string => $limit->endpoint, $limits));
        foreach ($written === [] ? [] : app('router')->getRoutes() as $other) {
            $name = self::endpointOf($other);
            if ($other !== $route && in_array($name, $written, true)) {
                throw new \LogicException("the endpoint \"$name\" is written at a limit of " . self::endpointOf($route)
                    . ', and another route has this name: they would share a counter; write another one');
            }
        }
    }
}
