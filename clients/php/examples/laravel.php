<?php

/** The example service in Laravel: routes, the service provider's boot, and a kernel with little more than the router. */

declare(strict_types=1);

use Illuminate\Config\Repository;
use Illuminate\Contracts\Debug\ExceptionHandler;
use Illuminate\Contracts\Http\Kernel as KernelContract;
use Illuminate\Foundation\Application;
use Illuminate\Foundation\Exceptions\Handler;
use Illuminate\Foundation\Http\Kernel;
use Illuminate\Http\Request;
use Illuminate\Http\Response;
use Illuminate\Support\Facades\Facade;
use Illuminate\Support\Facades\Route;
use Ratelimitd\Client;
use Ratelimitd\Key;
use Ratelimitd\Laravel\RateLimit;
use Ratelimitd\Laravel\ServiceProvider;
use Ratelimitd\Limit;
use Symfony\Component\HttpFoundation\StreamedResponse;
use Symfony\Component\HttpKernel\Exception\HttpExceptionInterface;

require 'Illuminate/autoload.php'; // with Composer: vendor/autoload.php, and not the next one
require __DIR__ . '/../src/autoload.php';

function text(string $body, int $status = 200, array $fields = []): Response
{
    return new Response($body, $status, ['Content-Type' => 'text/plain; charset=utf-8'] + $fields);
}

// ---- what `laravel new` makes, as far as this service needs it

$app = new Application(__DIR__);
$app->instance('config', new Repository([
    'app' => ['name' => null, 'env' => 'production', 'debug' => false],
    'logging' => ['default' => 'errorlog', 'channels' => ['errorlog' => ['driver' => 'errorlog']]],
    'view' => ['paths' => [], 'compiled' => sys_get_temp_dir()],
]));
$app->instance('env', 'production');
$app->singleton(KernelContract::class, get_class(new class ($app, $app['router']) extends Kernel {
    protected $bootstrappers = [];
}));
$app->singleton(ExceptionHandler::class, get_class(new class ($app) extends Handler {
    protected function renderHttpException(HttpExceptionInterface $e): Response // no views here
    {
        return text(Response::$statusTexts[$e->getStatusCode()] . "\n", $e->getStatusCode());
    }
}));
Facade::setFacadeApplication($app);
$app->singleton(Client::class, static fn () => new Client(timeout: (int) (getenv('TIMEOUT_MS') ?: 250) / 1000));
getenv('MISTAKE') === 'misplaced' || $app->register(ServiceProvider::class); // Composer's package discovery does this
$app->boot();

// ---- App\Providers\AppServiceProvider::boot()

$number = static fn (Request $request) => max(0, (int) $request->query('n', 1));
$isGold = static fn (Request $request) => $request->header('X-Plan') === 'gold';
RateLimit::for('two', 'web', new Limit('tenant', key: static fn (Request $request) => $request->header('X-Tenant') ?? Limit::NOT_LIMITED));
RateLimit::for('logins', new Limit(
    'login',
    key: Key::composite(Key::field('user'), Key::ip()),
    onError: 'deny',
    chargeWhen: static fn ($response) => $response->getStatusCode() === 401,
));
RateLimit::for('slot-of-slow', new Limit('slow', slot: true));
RateLimit::for('slot-of-stream', new Limit('stream', slot: true));
RateLimit::for('by-cost', new Limit('budget', cost: $number));
RateLimit::for('no-probes', new Limit('login', skip: static fn (Request $request) => $request->header('X-Probe') === 'yes'));
RateLimit::for('never-open', new Limit('web', onError: 'deny'));
RateLimit::for('by-plan', new Limit(
    limit: static fn (Request $request) => $isGold($request) ? 3 : 1,
    window: static fn (Request $request) => $isGold($request) ? '30s' : '60s',
    name: 'plan',
));
RateLimit::for('chosen', new Limit(
    static fn (Request $request) => $request->query('policy') === 'free' ? Limit::NOT_LIMITED : $request->query('policy'),
));
RateLimit::for('guesses', new Limit('2/m', name: 'guess', chargeWhen: static fn ($response) => $response->getStatusCode() === 403));
RateLimit::for('own-answer', new Limit(
    'budget',
    cost: $number,
    headers: 'both',
    respond: static fn () => text("slow down\n", 418, ['Retry-After' => '99', 'X-RateLimit-Limit' => '99']),
));

// ---- routes/api.php

Route::get('/ok', static fn () => text("ok\n"))->middleware('ratelimitd:web');
Route::post('/login', static fn (Request $request) => $request->post('password') === 'right' ? text("welcome\n") : text("wrong\n", 401))
    ->middleware('ratelimitd:logins');
Route::get('/inline', static fn () => text("inline\n"))->middleware('ratelimitd:2/5s');
Route::get('/two', static fn () => text("two\n"))->middleware('ratelimitd:two');
Route::get('/slow', static function (Request $request) {
    usleep(1000 * (int) $request->query('ms', 0));
    return text("slow\n");
})->middleware('ratelimitd:slot-of-slow');
Route::get('/stream', static fn () => new StreamedResponse(static function () {
    foreach (['one', 'two', 'three'] as $i => $line) {
        usleep($i === 0 ? 0 : 100_000);
        echo "$line\n";
        flush();
    }
}, 200, ['Content-Type' => 'text/plain; charset=utf-8']))->middleware('ratelimitd:slot-of-stream');
Route::get('/cost', static fn (Request $request) => text("cost {$number($request)}\n"))->middleware('ratelimitd:by-cost');
Route::get('/skip', static fn () => text("skip\n"))->middleware('ratelimitd:no-probes');
Route::get('/down', static fn () => text("down\n"))->middleware('ratelimitd:never-open');
Route::get('/plan', static fn () => text("plan\n"))->middleware('ratelimitd:by-plan');
Route::get('/choose', static fn () => text("choose\n"))->middleware('ratelimitd:chosen');
Route::get('/left', static function (Request $request) {
    $decision = $request->attributes->get('ratelimit');
    return text($decision === null ? "left unknown\n" : "left {$decision->remaining} of {$decision->of}\n");
})->middleware('ratelimitd:web');
Route::get('/guess', static fn (Request $request) => $request->query('right') === 'yes' ? text("right\n") : text("wrong\n", 403))
    ->middleware('ratelimitd:guesses');
Route::get('/own', static fn () => text("own\n", 200, ['X-RateLimit-Limit' => '99']))->middleware('ratelimitd:own-answer');

require __DIR__ . '/attacks_laravel.php';

Route::any('{path}', static fn () => text("no such page\n", 404))->where('path', '.*');

// ---- public/index.php

error_reporting(E_ALL & ~E_DEPRECATED); // Laravel 8 is older than this PHP
$kernel = $app->make(KernelContract::class);
$request = Request::capture();
$response = $kernel->handle($request);
$response->send();
$kernel->terminate($request, $response);
