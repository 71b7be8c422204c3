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
use Ratelimitd\Middleware;

require 'Nyholm/Psr7/autoload.php'; // with Composer: vendor/autoload.php, and none of the next three
interface_exists(RequestHandlerInterface::class) || require __DIR__ . '/../tests/psr15.php';
require __DIR__ . '/../src/Ratelimitd.php';
require __DIR__ . '/../src/Middleware.php';

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

$client = new Client();
$trusted = getenv('TRUSTED_PROXIES') ? explode(',', getenv('TRUSTED_PROXIES')) : [];
$ip = Key::ip($trusted);
$limit = static fn (mixed ...$options): Limit => new Limit(...['key' => $ip, ...$options]);

$routes = [
    'GET /ok' => [[$limit(policy: 'web')], static fn () => text(200, "ok\n")],
    'POST /login' => [
        [$limit(
            policy: 'login',
            key: static fn ($request) => $request->getParsedBody()['user'] ?? null,
            onError: 'deny',
            chargeWhen: static fn ($response) => $response->getStatusCode() === 401,
        )],
        static fn ($request) => ($request->getParsedBody()['password'] ?? '') === 'right' ? text(200, "welcome\n") : text(401, "wrong\n"),
    ],
    'GET /inline' => [[$limit(limit: '2/5s', name: 'inline')], static fn () => text(200, "inline\n")],
    'GET /two' => [
        [$limit(policy: 'web'), $limit(policy: 'tenant', key: static fn ($request) => $request->getHeader('X-Tenant')[0] ?? null)],
        static fn () => text(200, "two\n"),
    ],
    'GET /slow' => [[$limit(policy: 'slow', slot: true)], static function ($request) {
        usleep(1000 * (int) ($request->getQueryParams()['ms'] ?? 0));
        return text(200, "slow\n");
    }],
    'GET /stream' => [[$limit(policy: 'stream', slot: true)], static fn () => text(200, "one\ntwo\nthree\n")],
    'GET /cost' => [
        [$limit(policy: 'budget', cost: static fn ($request) => (int) ($request->getQueryParams()['n'] ?? 1))],
        static fn ($request) => text(200, "cost " . (int) ($request->getQueryParams()['n'] ?? 1) . "\n"),
    ],
    'GET /skip' => [
        [$limit(policy: 'login', skip: static fn ($request) => $request->getHeaderLine('X-Probe') === 'yes')],
        static fn () => text(200, "skip\n"),
    ],
    'GET /down' => [[$limit(policy: 'web', onError: 'deny')], static fn () => text(200, "down\n")],
];

$method = $_SERVER['REQUEST_METHOD'];
$request = new ServerRequest($method, $_SERVER['REQUEST_URI'], getallheaders(), null, '1.1', $_SERVER);
$request = $request->withQueryParams($_GET)->withParsedBody($_POST);
[$limits, $work] = $routes[($method === 'HEAD' ? 'GET' : $method) . ' ' . $request->getUri()->getPath()] ?? [[], null];
$response = match (true) {
    $work !== null => (new Middleware($client, limits: $limits))->process($request, new Handler($work)),
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
