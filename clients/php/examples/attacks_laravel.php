<?php

/** The routes of the table of attacks in Laravel. */

declare(strict_types=1);

use Illuminate\Contracts\Http\Kernel as KernelContract;
use Illuminate\Http\Request;
use Illuminate\Support\Facades\Route;
use Ratelimitd\Key;
use Ratelimitd\Laravel\RateLimit;
use Ratelimitd\Limit;

$apiKey = static fn (Request $request) => $request->header('X-Api-Key');
$byUser = static fn (callable $find) => static fn (Request $request) => Key::user($find($request), Key::ip()($request));
$foundUser = $byUser(static fn (Request $request) => $request->attributes->get('user'));
$say = static fn (string $body) => static fn () => text("$body\n");
$to = static fn (string $path) => static fn (Request $request) => Route::dispatch($request->duplicate(
    server: ['REQUEST_URI' => $path, 'REQUEST_METHOD' => 'GET'] + $request->server->all(),
));

// ---- a service provider's boot()

RateLimit::for('never-deny', new Limit('never', onError: 'deny'));
RateLimit::for('never-preflight', new Limit('never', skip: Limit::isPreflight(...)));
RateLimit::for('never-key', new Limit('never', key: $apiKey));
RateLimit::for('never-key-allowed', new Limit('never', key: $apiKey, onError: 'allow'));
RateLimit::for('never-json', new Limit('never', key: static function (Request $request) {
    $body = json_decode($request->getContent());
    return is_object($body) && is_string($body->user ?? null) ? $body->user : null;
}));
RateLimit::for('never-parts', new Limit('never', key: Key::composite(Key::ip(), $apiKey)));
RateLimit::for('never-param', new Limit('never', key: static fn (Request $request) => $request->query('user')));
RateLimit::for('never-exempt', new Limit('never', key: static fn (Request $request) => $request->header('X-Exempt') === 'yes'
    ? Limit::NOT_LIMITED : Key::ip()($request)));
RateLimit::for('pair-user', new Limit('pair', key: $byUser(static fn (Request $request) => $request->header('X-User'))));
RateLimit::for('never-broken', new Limit('never', key: $byUser(static fn (Request $request) => $request->user('none')->getAuthIdentifier())));
RateLimit::for('pair-found', new Limit('pair', key: $foundUser));
RateLimit::for('web-cost', new Limit('web', cost: 5));
RateLimit::for('web-number', new Limit('web', chargeWhen: static fn () => 5));
RateLimit::for('shared', new Limit('2/1m', endpoint: 'shared'));
RateLimit::for('moves', new Limit(
    limit: static fn (Request $request) => (int) $request->query('limit', 0),
    window: '1m',
    key: static fn () => 'moves',
));

final class FindUser
{
    public function handle(Request $request, Closure $next): mixed
    {
        $request->attributes->set('user', $request->header('X-User'));
        return $next($request);
    }
}

final class Guard
{
    public function handle(Request $request, Closure $next): mixed
    {
        return $request->header('X-User') === null ? text("who\n", 401) : $next($request);
    }
}

$app->make(KernelContract::class)->pushMiddleware(FindUser::class);

// ---- routes

Route::any('/attack/any', $say('any'))->middleware('ratelimitd:never-deny');
Route::any('/attack/preflight', $say('preflight'))->middleware('ratelimitd:never-preflight');
foreach (['key' => 'never-key', 'key-allowed' => 'never-key-allowed', 'key-said' => 'never-key', 'parts' => 'never-parts',
    'param' => 'never-param', 'exempt' => 'never-exempt', 'user' => 'pair-user', 'user-broken' => 'never-broken',
    'late-hook' => 'pair-found', 'forwarded' => 'pair', 'number' => 'web-number', 'moves' => 'moves'] as $name => $limits) {
    Route::get("/attack/$name", $say($name))->middleware("ratelimitd:$limits");
}
Route::post('/attack/json', $say('json'))->middleware('ratelimitd:never-json');
Route::get('/attack/late-guard', $say('late-guard'))->middleware([Guard::class, 'ratelimitd:pair-found']);
Route::get('/attack/forward', $to('/attack/forwarded'));
Route::get('/attack/redirect', $to('/attack/redirected'))->middleware('ratelimitd:web');
Route::get('/attack/redirected', $say('redirected'))->middleware('ratelimitd:web');
Route::middleware('ratelimitd:never')->prefix('/attack/raw')->group(static fn () => Route::get('/x', $say('raw')));
Route::middleware('ratelimitd:web')->prefix('/attack/outer')->group(static function () use ($say) {
    foreach (['twice' => 'web', 'cost' => 'web-cost', 'inner' => 'pair', 'key' => 'never-key'] as $name => $limits) {
        Route::get("/$name", $say($name))->middleware("ratelimitd:$limits");
    }
});
Route::middleware('ratelimitd:strict')->prefix('/attack/strict')->group(
    static fn () => Route::get('/inner', $say('inner'))->middleware('ratelimitd:never'),
);

Route::prefix('/attack/names')->group(static function () use ($say) {
    foreach (['factory/a', 'factory/b'] as $name) {
        Route::get("/$name", $say('factory'))->middleware('ratelimitd:2/1m');
    }
    Route::get('/lambda/a', static fn () => text("a\n"))->middleware('ratelimitd:2/1m');
    Route::get('/lambda/b', static fn () => text("b\n"))->middleware('ratelimitd:2/1m');
    Route::get('/method', $say('method'))->middleware('ratelimitd:2/1m');
    Route::post('/method', $say('method'))->middleware('ratelimitd:2/1m');
    Route::match(['GET', 'POST'], '/both', $say('both'))->middleware('ratelimitd:2/1m');
    foreach (['mounted-a', 'mounted-b'] as $prefix) {
        Route::prefix($prefix)->group(static fn () => Route::get('/x', $say('x'))->middleware('ratelimitd:2/1m'));
    }
    Route::get('/item/{id}', $say('item'))->middleware('ratelimitd:2/1m');
    Route::get('/shared-a', $say('shared-a'))->middleware('ratelimitd:shared');
    Route::get('/shared-b', $say('shared-b'))->middleware('ratelimitd:shared');
});

// ---- mistakes

switch (getenv('MISTAKE')) {
    case 'equal-names':
        RateLimit::for('mistaken', new Limit('2/1m', endpoint: 'GET /attack/mistake/2'));
        Route::get('/attack/mistake/1', $say('1'))->middleware('ratelimitd:mistaken');
        Route::get('/attack/mistake/2', $say('2'))->middleware('ratelimitd:2/1m');
        break;
    case 'misplaced': // without the service provider
        Route::get('/attack/mistake/1', $say('1'))->middleware('ratelimitd:never');
        break;
    case 'misspelt-key':
        RateLimit::for('mistaken', new Limit('never', key: 'misspelt'));
        Route::get('/attack/mistake/1', $say('1'))->middleware('ratelimitd:mistaken');
}
