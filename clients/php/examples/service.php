<?php

/**
 * The example service: a front controller with a middleware for each route. It runs under PHP-FPM, with any PSR-7 library;
 * here with nyholm/psr7.
 */

declare(strict_types=1);

use Nyholm\Psr7\Response;
use Nyholm\Psr7\ServerRequest;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Server\RequestHandlerInterface;
use Ratelimitd\Client;
use Ratelimitd\Key;
use Ratelimitd\Limit;
use Ratelimitd\Limiter;
use Ratelimitd\Middleware;

require 'Nyholm/Psr7/autoload.php'; // with Composer: vendor/autoload.php, and none of the next two
interface_exists(RequestHandlerInterface::class) || require __DIR__ . '/../tests/psr15.php';
require __DIR__ . '/../src/autoload.php';

/** A route's own work as a PSR-15 handler. */
final class Handler implements RequestHandlerInterface
{
    public function __construct(private readonly \Closure $work)
    {
    }

    public function handle(ServerRequestInterface $request): ResponseInterface
    {
        return ($this->work)($request);
    }
}

function text(int $status, string $body): ResponseInterface
{
    return new Response($status, ['Content-Type' => 'text/plain; charset=utf-8'], $body);
}

$trusted = getenv('TRUSTED_PROXIES') ? explode(',', getenv('TRUSTED_PROXIES')) : [];
$ip = Key::ip($trusted);
$limiter = new Limiter(new Client(timeout: (int) (getenv('TIMEOUT_MS') ?: 250) / 1000), key: $ip);
$number = static fn ($request) => max(0, (int) ($request->getQueryParams()['n'] ?? 1));
$isGold = static fn ($request) => $request->getHeaderLine('X-Plan') === 'gold';

$routes = [
    'GET /ok' => [['web'], static fn () => text(200, "ok\n")],
    'POST /login' => [
        [new Limit(
            'login',
            key: Key::composite(Key::field('user'), $ip),
            onError: 'deny',
            chargeWhen: static fn ($response) => $response->getStatusCode() === 401,
        )],
        static fn ($request) => ($request->getParsedBody()['password'] ?? '') === 'right' ? text(200, "welcome\n") : text(401, "wrong\n"),
    ],
    'GET /inline' => [['2/5s'], static fn () => text(200, "inline\n")],
    'GET /two' => [
        ['web', new Limit('tenant', key: static fn ($request) => $request->getHeader('X-Tenant')[0] ?? Limit::NOT_LIMITED)],
        static fn () => text(200, "two\n"),
    ],
    'GET /slow' => [[new Limit('slow', slot: true)], static function ($request) {
        usleep(1000 * (int) ($request->getQueryParams()['ms'] ?? 0));
        return text(200, "slow\n");
    }],
    'GET /stream' => [[new Limit('stream', slot: true)], static fn () => text(200, "one\ntwo\nthree\n")],
    'GET /cost' => [[new Limit('budget', cost: $number)], static fn ($request) => text(200, "cost {$number($request)}\n")],
    'GET /skip' => [
        [new Limit('login', skip: static fn ($request) => $request->getHeaderLine('X-Probe') === 'yes')],
        static fn () => text(200, "skip\n"),
    ],
    'GET /down' => [[new Limit('web', onError: 'deny')], static fn () => text(200, "down\n")],
    'GET /plan' => [
        [new Limit(
            limit: static fn ($request) => $isGold($request) ? 3 : 1,
            window: static fn ($request) => $isGold($request) ? '30s' : '60s',
            name: 'plan',
        )],
        static fn () => text(200, "plan\n"),
    ],
    'GET /choose' => [
        [new Limit(static function ($request) {
            $policy = $request->getQueryParams()['policy'] ?? null;
            return $policy === 'free' ? Limit::NOT_LIMITED : $policy;
        })],
        static fn () => text(200, "choose\n"),
    ],
    'GET /left' => [['web'], static function ($request) {
        $decision = $request->getAttribute('ratelimit');
        return text(200, $decision === null ? "left unknown\n" : "left {$decision->remaining} of {$decision->of}\n");
    }],
    'GET /guess' => [
        [new Limit('2/m', name: 'guess', chargeWhen: static fn ($response) => $response->getStatusCode() === 403)],
        static fn ($request) => ($request->getQueryParams()['right'] ?? '') === 'yes' ? text(200, "right\n") : text(403, "wrong\n"),
    ],
    'GET /own' => [
        [new Limit(
            'budget',
            cost: $number,
            headers: 'both',
            respond: static fn () => text(418, "slow down\n")->withHeader('Retry-After', '99')->withHeader('X-RateLimit-Limit', '99'),
        )],
        static fn () => text(200, "own\n")->withHeader('X-RateLimit-Limit', '99'),
    ],
];

$method = $_SERVER['REQUEST_METHOD'];
$request = new ServerRequest($method, $_SERVER['REQUEST_URI'], getallheaders(), null, '1.1', $_SERVER);
$request = $request->withQueryParams($_GET)->withParsedBody($_POST);
$route = ($method === 'HEAD' ? 'GET' : $method) . ' ' . $request->getUri()->getPath();
[$limits, $work] = $routes[$route] ?? [[], null];
$response = match (true) {
    $work !== null => (new Middleware($limiter, $limits, endpoint: $route))->process($request, new Handler($work)),
    str_starts_with($request->getUri()->getPath(), '/attack/') => (require __DIR__ . '/attacks_psr15.php')($limiter, $request),
    default => text(404, "not found\n"),
};

http_response_code($response->getStatusCode());
foreach ($response->getHeaders() as $name => $values) {
    foreach ($values as $value) {
        header("$name: $value", false);
    }
}
if ($method === 'HEAD') {
    return;
}
// The stream comes in pieces, to show that its slot lasts as long as the body.
$pieces = str_ends_with($request->getUri()->getPath(), '/stream') && $response->getStatusCode() === 200
    ? preg_split('/(?<=\n)/', (string) $response->getBody(), -1, PREG_SPLIT_NO_EMPTY) : [(string) $response->getBody()];
foreach ($pieces as $i => $piece) {
    if ($i > 0) {
        usleep(100_000);
    }
    echo $piece;
    flush();
}
