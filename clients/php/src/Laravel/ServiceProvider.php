<?php

declare(strict_types=1);

namespace Ratelimitd\Laravel;

use Illuminate\Routing\Router;
use Ratelimitd\Client;
use Ratelimitd\Limiter;

/** Registers the middleware `ratelimitd`. Bind your own Client or Limiter to change their options. */
final class ServiceProvider extends \Illuminate\Support\ServiceProvider
{
    public function register(): void
    {
        $log = static fn (string $line) => logger()->warning($line);
        $this->app->singletonIf(Client::class, static fn (): Client => new Client(log: $log));
        $this->app->singletonIf(Limiter::class, fn (): Limiter => new Limiter($this->app->make(Client::class), log: $log));
    }

    public function boot(Router $router): void
    {
        $router->aliasMiddleware('ratelimitd', RateLimit::class);
    }
}
