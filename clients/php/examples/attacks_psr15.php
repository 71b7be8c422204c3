<?php

/** The routes of the table of attacks: a pipeline of middleware for each, as a router would run it. */

declare(strict_types=1);

use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Ratelimitd\Key;
use Ratelimitd\Limit;
use Ratelimitd\Limiter;
use Ratelimitd\Middleware;

return static function (Limiter $limiter, ServerRequestInterface $request): ResponseInterface {
    $field = static fn (string $name) => static fn ($request) => $request->getHeader($name)[0] ?? null;
    $ip = Key::ip();
    $apiKey = $field('X-Api-Key');
    $byUser = static fn (callable $find) => static fn ($request) => Key::user($find($request), $ip($request));
    $foundUser = $byUser(static fn ($request) => $request->getAttribute('user'));
    $text = static fn (string $body) => static fn () => text(200, "$body\n");
    $dispatch = null;

    // A pipeline: middleware, each of which has what is behind it, and the handler at its end.
    $run = static function (array $pipeline, ServerRequestInterface $request) use (&$run): ResponseInterface {
        $one = array_shift($pipeline);
        $next = new Handler(static fn ($request) => $run($pipeline, $request));
        return $one instanceof Middleware ? $one->process($request, $next) : $one($request, $next);
    };
    $limited = static fn (string $endpoint, string|Limit ...$limits) => new Middleware($limiter, $limits, endpoint: $endpoint);
    $findUser = static fn ($request, $next) => $next->handle($request->withAttribute('user', $request->getHeader('X-User')[0] ?? null));
    $guard = static fn ($request, $next) => $request->getHeaderLine('X-User') === '' ? text(401, "who\n")
        : $next->handle($request->withAttribute('user', $request->getHeaderLine('X-User')));
    $user = static function ($request) {
        $body = json_decode((string) file_get_contents('php://input'));
        return is_object($body) && is_string($body->user ?? null) ? $body->user : null;
    };
    $to = static function (string $path) use (&$dispatch) {
        return static function ($request) use ($path, &$dispatch) {
            return $dispatch($request->withUri($request->getUri()->withPath($path)));
        };
    };

    $routes = [
        '/attack/any' => [new Limit('never', onError: 'deny')],
        '/attack/preflight' => [new Limit('never', skip: Limit::isPreflight(...))],
        'GET /attack/key' => [new Limit('never', key: $apiKey)],
        'GET /attack/key-allowed' => [new Limit('never', key: $apiKey, onError: 'allow')],
        'GET /attack/key-said' => [new Limit('never', key: $apiKey)],
        'POST /attack/json' => [new Limit('never', key: $user)],
        'GET /attack/parts' => [new Limit('never', key: Key::composite($ip, $apiKey))],
        'GET /attack/param' => [new Limit('never', key: static fn ($request) => $request->getQueryParams()['user'] ?? null)],
        'GET /attack/exempt' => [new Limit('never', key: static fn ($request) => $request->getHeaderLine('X-Exempt') === 'yes'
            ? Limit::NOT_LIMITED : $ip($request))],
        'GET /attack/user' => [new Limit('pair', key: $byUser($field('X-User')))],
        'GET /attack/user-broken' => [new Limit('never', key: $byUser(static fn ($request) => $request->getAttribute('session')->user()))],
        'GET /attack/late-hook' => [new Limit('pair', key: $foundUser)],
        'GET /attack/late-guard' => [$guard, new Limit('pair', key: $foundUser)],
        'GET /attack/forward' => [$to('/attack/forwarded')],
        'GET /attack/forwarded' => ['pair'],
        'GET /attack/redirect' => ['web', $to('/attack/redirected')],
        'GET /attack/redirected' => ['web'],
        'GET /attack/number' => [new Limit('web', chargeWhen: static fn () => 5)],
        'GET /attack/outer/twice' => ['web'],
        'GET /attack/outer/cost' => [new Limit('web', cost: 5)],
        'GET /attack/outer/inner' => ['pair'],
        'GET /attack/outer/key' => [new Limit('never', key: $apiKey)],
        'GET /attack/strict/inner' => ['never'],
        'GET /attack/raw/x' => [$text('raw')],
        'GET /attack/names/method' => ['2/1m'],
        'POST /attack/names/method' => ['2/1m'],
        'GET,POST /attack/names/both' => ['2/1m'],
        'GET /attack/names/item/{id}' => ['2/1m'],
        'GET /attack/names/shared-a' => [new Limit('2/1m', endpoint: 'shared')],
        'GET /attack/names/shared-b' => [new Limit('2/1m', endpoint: 'shared')],
        'GET /attack/moves' => [new Limit(
            limit: static fn ($request) => (int) ($request->getQueryParams()['limit'] ?? 0),
            window: '1m',
            key: static fn () => 'moves',
        )],
    ];
    foreach (['factory/a', 'factory/b', 'lambda/a', 'lambda/b', 'mounted-a/x', 'mounted-b/x'] as $name) {
        $routes["GET /attack/names/$name"] = ['2/1m'];
    }
    if (getenv('MISTAKE') === 'misspelt-key') {
        $routes['GET /attack/mistake/1'] = [new Limit('never', key: 'misspelt')];
    }
    // Groups of the router: by the beginning of the path.
    $groups = ['/attack/outer/' => 'web', '/attack/strict/' => 'strict', '/attack/raw/' => 'never'];

    $dispatch = static function (ServerRequestInterface $request) use ($routes, $groups, $run, $limited, $findUser, $text): ResponseInterface {
        $path = $request->getUri()->getPath();
        $method = $request->getMethod() === 'HEAD' ? 'GET' : $request->getMethod();
        foreach ($routes as $endpoint => $pipeline) {
            [$pattern, $methods] = array_reverse(explode(' ', $endpoint)) + [1 => ''];
            $isHere = preg_match('#^' . preg_replace('/\\\\\{\w+\\\\\}/', '[^/]+', preg_quote($pattern, '#')) . '$#D', $path);
            if (!$isHere || ($methods !== '' && !in_array($method, explode(',', $methods), true))) {
                continue;
            }
            $pipeline = array_map(static fn ($one) => $one instanceof Closure ? $one : $limited($endpoint, $one), $pipeline);
            foreach ($groups as $beginning => $limit) {
                str_starts_with($pattern, $beginning) && array_unshift($pipeline, $limited($beginning, $limit));
            }
            return $run([$findUser, ...$pipeline, $text(basename($pattern))], $request);
        }
        return text(404, "not found\n");
    };
    return $dispatch($request);
};
