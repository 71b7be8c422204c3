<?php

/** The routes of the table of attacks in Symfony. */

declare(strict_types=1);

namespace App;

use Ratelimitd\Key;
use Ratelimitd\Limit;
use Ratelimitd\NotLimited;
use Ratelimitd\Symfony\RateLimit;
use Symfony\Component\DependencyInjection\Loader\Configurator\DefaultsConfigurator;
use Symfony\Component\EventDispatcher\EventSubscriberInterface;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpKernel\Event\ControllerArgumentsEvent;
use Symfony\Component\HttpKernel\Event\RequestEvent;
use Symfony\Component\HttpKernel\HttpKernelInterface;
use Symfony\Component\HttpKernel\KernelEvents;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;

/** Finds the user, and answers 401 in front of one controller, as a firewall and #[IsGranted] do. */
final class FindUser implements EventSubscriberInterface
{
    public static function getSubscribedEvents(): array
    {
        return [KernelEvents::REQUEST => ['find', 8], KernelEvents::CONTROLLER_ARGUMENTS => ['guard', 20]];
    }

    public function find(RequestEvent $event): void
    {
        $event->getRequest()->attributes->set('user', $event->getRequest()->headers->get('X-User'));
    }

    public function guard(ControllerArgumentsEvent $event): void
    {
        $request = $event->getRequest();
        if ($request->attributes->get('_route') === 'GET /attack/late-guard' && !$request->headers->has('X-User')) {
            $event->setController(static fn () => new Response("who\n", 401));
        }
    }
}

class Attacks
{
    public function __construct(private readonly HttpKernelInterface $kernel)
    {
    }

    #[RateLimit('never', onError: 'deny')]
    public function any(Request $request): Response
    {
        return self::say($request);
    }

    #[RateLimit('never', skip: [Limit::class, 'isPreflight'])]
    public function preflight(Request $request): Response
    {
        return self::say($request);
    }

    #[RateLimit('never', key: [self::class, 'apiKey'])]
    public function key(Request $request): Response
    {
        return self::say($request);
    }

    #[RateLimit('never', key: [self::class, 'apiKey'], onError: 'allow')]
    public function keyAllowed(Request $request): Response
    {
        return self::say($request);
    }

    #[RateLimit('never', key: [self::class, 'apiKey'])]
    public function keySaid(Request $request): Response
    {
        return self::say($request);
    }

    #[RateLimit('never', key: [self::class, 'userOfJson'])]
    public function json(Request $request): Response
    {
        return self::say($request);
    }

    #[RateLimit('never', key: [self::class, 'addressAndKey'])]
    public function parts(Request $request): Response
    {
        return self::say($request);
    }

    #[RateLimit('never', key: [self::class, 'userOfQuery'])]
    public function param(Request $request): Response
    {
        return self::say($request);
    }

    #[RateLimit('never', key: [self::class, 'unlessExempt'])]
    public function exempt(Request $request): Response
    {
        return self::say($request);
    }

    #[RateLimit('pair', key: [self::class, 'byField'])]
    public function user(Request $request): Response
    {
        return self::say($request);
    }

    #[RateLimit('never', key: [self::class, 'byNothing'])]
    public function userBroken(Request $request): Response
    {
        return self::say($request);
    }

    #[RateLimit('pair', key: [self::class, 'byFound'])]
    public function lateHook(Request $request): Response
    {
        return self::say($request);
    }

    #[RateLimit('pair', key: [self::class, 'byFound'])]
    public function lateGuard(Request $request): Response
    {
        return self::say($request);
    }

    #[RateLimit('pair')]
    public function forwarded(Request $request): Response
    {
        return self::say($request);
    }

    #[RateLimit('web')]
    public function redirected(Request $request): Response
    {
        return self::say($request);
    }

    #[RateLimit('web', chargeWhen: [self::class, 'five'])]
    public function number(Request $request): Response
    {
        return self::say($request);
    }

    #[RateLimit('2/1m', endpoint: 'shared')]
    public function shared(Request $request): Response
    {
        return self::say($request);
    }

    #[RateLimit('2/1m')]
    public function inline(Request $request): Response
    {
        return self::say($request);
    }

    #[RateLimit(limit: [self::class, 'limitOfQuery'], window: '1m', key: [self::class, 'moving'])]
    public function moves(Request $request): Response
    {
        return self::say($request);
    }

    public function forward(Request $request): Response
    {
        return $this->kernel->handle($request->duplicate(null, null, ['_controller' => [self::class, 'forwarded'], 'say' => 'forwarded']),
            HttpKernelInterface::SUB_REQUEST); // as AbstractController::forward() does
    }

    #[RateLimit('web')]
    public function redirect(Request $request): Response
    {
        return $this->kernel->handle($request->duplicate(null, null, ['_controller' => [self::class, 'redirected'], 'say' => 'redirected']),
            HttpKernelInterface::SUB_REQUEST);
    }

    public static function say(Request $request): Response
    {
        $body = $request->attributes->get('say') ?? basename($request->getPathInfo());
        return new Response("$body\n", 200, ['Content-Type' => 'text/plain; charset=utf-8']);
    }

    public static function apiKey(Request $request): ?string
    {
        return $request->headers->get('X-Api-Key');
    }

    public static function userOfJson(Request $request): ?string
    {
        $body = json_decode($request->getContent());
        return is_object($body) && is_string($body->user ?? null) ? $body->user : null;
    }

    public static function addressAndKey(Request $request): string|NotLimited|null
    {
        return Key::composite(Key::ip(), [self::class, 'apiKey'])($request);
    }

    public static function userOfQuery(Request $request): ?string
    {
        return $request->query->get('user');
    }

    public static function unlessExempt(Request $request): string|NotLimited
    {
        return $request->headers->get('X-Exempt') === 'yes' ? Limit::NOT_LIMITED : Key::ip()($request);
    }

    public static function byField(Request $request): string
    {
        return Key::user($request->headers->get('X-User'), Key::ip()($request));
    }

    public static function byFound(Request $request): string
    {
        return Key::user($request->attributes->get('user'), Key::ip()($request));
    }

    public static function byNothing(Request $request): string
    {
        return Key::user($request->attributes->get('token')->getUser(), Key::ip()($request));
    }

    public static function five(): int
    {
        return 5;
    }

    public static function limitOfQuery(Request $request): int
    {
        return $request->query->getInt('limit');
    }

    public static function moving(): string
    {
        return 'moves';
    }

    public static function configure(DefaultsConfigurator $services): void
    {
        $services->set(FindUser::class);
        foreach ([self::class, Outer::class, Strict::class, Raw::class] as $controller) {
            $services->set($controller)->tag('controller.service_arguments')->public();
        }
        if (getenv('MISTAKE') === 'equal-names') {
            $services->set(Mistaken::class)->tag('controller.service_arguments')->public();
        } elseif (getenv('MISTAKE') === 'misplaced') {
            $services->set(NoController::class)->public();
        } elseif (getenv('MISTAKE') === 'misspelt-key') {
            $services->set(Misspelt::class)->tag('controller.service_arguments')->public();
        }
    }

    public static function addRoutes(RoutingConfigurator $routes): void
    {
        $add = static fn (string $methods, string $path, array $controller) => $routes->add(ltrim("$methods /attack/$path"), "/attack/$path")
            ->controller($controller)->methods($methods === '' ? [] : explode(',', $methods));
        $add('', 'any', [self::class, 'any']);
        $add('', 'preflight', [self::class, 'preflight']);
        $add('POST', 'json', [self::class, 'json']);
        foreach (['key', 'parts', 'param', 'exempt', 'user', 'forward', 'forwarded', 'redirect', 'number', 'moves'] as $name) {
            $add('GET', $name, [self::class, $name]);
        }
        foreach (['key-allowed' => 'keyAllowed', 'key-said' => 'keySaid', 'user-broken' => 'userBroken', 'late-hook' => 'lateHook',
            'late-guard' => 'lateGuard', 'names/shared-a' => 'shared', 'names/shared-b' => 'shared'] as $path => $name) {
            $add('GET', $path, [self::class, $name]);
        }
        foreach (['twice', 'cost', 'inner', 'key'] as $name) {
            $add('GET', "outer/$name", [Outer::class, $name]);
        }
        $add('GET', 'strict/inner', [Strict::class, 'inner']);
        $add('GET', 'raw/x', [Raw::class, 'x']);
        foreach (['factory/a', 'factory/b', 'lambda/a', 'lambda/b', 'mounted-a/x', 'mounted-b/x', 'item/{id}', 'method'] as $path) {
            $add('GET', "names/$path", [self::class, 'inline']);
        }
        $add('POST', 'names/method', [self::class, 'inline']);
        $add('GET,POST', 'names/both', [self::class, 'inline']);
        match (getenv('MISTAKE')) {
            'equal-names' => [$add('GET', 'mistake/1', [Mistaken::class, 'one']), $add('GET', 'mistake/2', [Mistaken::class, 'two'])],
            'misplaced' => $add('GET', 'mistake/1', [self::class, 'say']),
            'misspelt-key' => $add('GET', 'mistake/1', [Misspelt::class, 'one']),
            default => null,
        };
    }
}

/** A limit of the class and limits of its methods are two declarations. */
#[RateLimit('web')]
final class Outer
{
    #[RateLimit('web')]
    public function twice(Request $request): Response
    {
        return Attacks::say($request);
    }

    #[RateLimit('web', cost: 5)]
    public function cost(Request $request): Response
    {
        return Attacks::say($request);
    }

    #[RateLimit('pair')]
    public function inner(Request $request): Response
    {
        return Attacks::say($request);
    }

    #[RateLimit('never', key: [Attacks::class, 'apiKey'])]
    public function key(Request $request): Response
    {
        return Attacks::say($request);
    }
}

#[RateLimit('strict')]
final class Strict
{
    #[RateLimit('never')]
    public function inner(Request $request): Response
    {
        return Attacks::say($request);
    }
}

#[RateLimit('never')]
final class Raw
{
    public function x(): Response
    {
        return new Response("raw\n");
    }
}

// ---- mistakes

final class Mistaken
{
    #[RateLimit('2/1m', endpoint: 'GET /attack/mistake/2')]
    public function one(Request $request): Response
    {
        return Attacks::say($request);
    }

    #[RateLimit('2/1m')]
    public function two(Request $request): Response
    {
        return Attacks::say($request);
    }
}

final class NoController
{
    #[RateLimit('never')]
    public function one(): void
    {
    }
}

final class Misspelt
{
    #[RateLimit('never', key: 'misspelt')]
    public function one(Request $request): Response
    {
        return Attacks::say($request);
    }
}
