<?php

/** The example service in Symfony: a kernel, a controller whose limits are attributes, and public/index.php. */

declare(strict_types=1);

namespace App;

use Ratelimitd\Decision;
use Ratelimitd\Key;
use Ratelimitd\Limit;
use Ratelimitd\NotLimited;
use Ratelimitd\Symfony\RateLimit;
use Ratelimitd\Symfony\RatelimitdBundle;
use Symfony\Bundle\FrameworkBundle\FrameworkBundle;
use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpFoundation\StreamedResponse;
use Symfony\Component\HttpKernel\Kernel;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;

require 'Symfony/Bundle/FrameworkBundle/autoload.php'; // with Composer: vendor/autoload.php, and not the next one
require __DIR__ . '/../src/autoload.php';
require __DIR__ . '/attacks_symfony.php';

// ---- src/Controller

final class Service
{
    #[RateLimit('web')]
    public function ok(): Response
    {
        return self::text("ok\n");
    }

    #[RateLimit('login', key: [self::class, 'account'], onError: 'deny', chargeWhen: [self::class, 'isUnauthorized'])]
    public function login(Request $request): Response
    {
        return $request->request->get('password') === 'right' ? self::text("welcome\n") : self::text("wrong\n", 401);
    }

    public static function account(Request $request): string
    {
        return Key::composite(Key::field('user'), Key::ip())($request);
    }

    public static function isUnauthorized(Response $response): bool
    {
        return $response->getStatusCode() === 401;
    }

    #[RateLimit('2/5s')]
    public function inline(): Response
    {
        return self::text("inline\n");
    }

    #[RateLimit('web')]
    #[RateLimit('tenant', key: [self::class, 'tenant'])]
    public function two(): Response
    {
        return self::text("two\n");
    }

    public static function tenant(Request $request): string|NotLimited
    {
        return $request->headers->get('X-Tenant') ?? Limit::NOT_LIMITED;
    }

    #[RateLimit('slow', slot: true)]
    public function slow(Request $request): Response
    {
        usleep(1000 * $request->query->getInt('ms'));
        return self::text("slow\n");
    }

    #[RateLimit('stream', slot: true)]
    public function stream(): Response
    {
        return new StreamedResponse(static function (): void {
            foreach (['one', 'two', 'three'] as $i => $line) {
                usleep($i === 0 ? 0 : 100_000);
                echo "$line\n";
                flush();
            }
        }, 200, ['Content-Type' => 'text/plain; charset=utf-8']);
    }

    #[RateLimit('budget', cost: [self::class, 'number'])]
    public function cost(Request $request): Response
    {
        return self::text('cost ' . self::number($request) . "\n");
    }

    public static function number(Request $request): int
    {
        return max(0, $request->query->getInt('n', 1));
    }

    #[RateLimit('login', skip: [self::class, 'isProbe'])]
    public function skip(): Response
    {
        return self::text("skip\n");
    }

    public static function isProbe(Request $request): bool
    {
        return $request->headers->get('X-Probe') === 'yes';
    }

    #[RateLimit('web', onError: 'deny')]
    public function down(): Response
    {
        return self::text("down\n");
    }

    #[RateLimit(limit: [self::class, 'limitOfPlan'], window: [self::class, 'windowOfPlan'], name: 'plan')]
    public function plan(): Response
    {
        return self::text("plan\n");
    }

    public static function limitOfPlan(Request $request): int
    {
        return $request->headers->get('X-Plan') === 'gold' ? 3 : 1;
    }

    public static function windowOfPlan(Request $request): string
    {
        return $request->headers->get('X-Plan') === 'gold' ? '30s' : '60s';
    }

    #[RateLimit([self::class, 'chosen'])]
    public function choose(): Response
    {
        return self::text("choose\n");
    }

    public static function chosen(Request $request): string|NotLimited|null
    {
        return $request->query->get('policy') === 'free' ? Limit::NOT_LIMITED : $request->query->get('policy');
    }

    #[RateLimit('web')]
    public function left(?Decision $ratelimit): Response
    {
        return self::text($ratelimit === null ? "left unknown\n" : "left {$ratelimit->remaining} of {$ratelimit->of}\n");
    }

    #[RateLimit('2/m', name: 'guess', chargeWhen: [self::class, 'isForbidden'])]
    public function guess(Request $request): Response
    {
        return $request->query->get('right') === 'yes' ? self::text("right\n") : self::text("wrong\n", 403);
    }

    public static function isForbidden(Response $response): bool
    {
        return $response->getStatusCode() === 403;
    }

    #[RateLimit('budget', cost: [self::class, 'number'], headers: 'both', respond: [self::class, 'slowDown'])]
    public function own(): Response
    {
        return self::text("own\n", 200, ['X-RateLimit-Limit' => '99']);
    }

    public static function slowDown(): Response
    {
        return self::text("slow down\n", 418, ['Retry-After' => '99', 'X-RateLimit-Limit' => '99']);
    }

    private static function text(string $body, int $status = 200, array $fields = []): Response
    {
        return new Response($body, $status, ['Content-Type' => 'text/plain; charset=utf-8'] + $fields);
    }
}

// ---- src/Kernel.php, with config/services.php and config/routes.php in it

final class ServiceKernel extends Kernel
{
    use MicroKernelTrait;

    public function registerBundles(): iterable
    {
        return [new FrameworkBundle(), new RatelimitdBundle()];
    }

    private function configureContainer(ContainerConfigurator $container): void
    {
        $container->extension('framework', ['secret' => 'none', 'router' => ['utf8' => true], 'http_method_override' => false]);
        $container->extension('ratelimitd', ['timeout' => (int) (getenv('TIMEOUT_MS') ?: 250) / 1000]);
        $services = $container->services()->defaults()->autowire()->autoconfigure();
        $services->set(Service::class)->tag('controller.service_arguments');
        Attacks::configure($services);
    }

    private function configureRoutes(RoutingConfigurator $routes): void
    {
        foreach (get_class_methods(Service::class) as $name) {
            $method = new \ReflectionMethod(Service::class, $name);
            if (!$method->isStatic()) {
                $routes->add($name, "/$name")->controller([Service::class, $name])->methods([$name === 'login' ? 'POST' : 'GET']);
            }
        }
        Attacks::addRoutes($routes);
    }

    public function getCacheDir(): string
    {
        return getenv('CACHE_DIR') ?: sys_get_temp_dir() . '/ratelimitd-symfony-' . posix_geteuid();
    }

    public function getLogDir(): string
    {
        return $this->getCacheDir();
    }

    public function getProjectDir(): string
    {
        return __DIR__;
    }
}

// ---- public/index.php

$kernel = new ServiceKernel('prod', false);
$request = Request::createFromGlobals();
$response = $kernel->handle($request);
$response->send();
$kernel->terminate($request, $response);
