<?php

declare(strict_types=1);

namespace Ratelimitd\Symfony;

use Ratelimitd\Admission;
use Ratelimitd\HttpFoundation;
use Ratelimitd\Limit;
use Ratelimitd\Limiter;
use Ratelimitd\Visit;
use Symfony\Component\EventDispatcher\EventSubscriberInterface;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpKernel\Event\ControllerArgumentsEvent;
use Symfony\Component\HttpKernel\Event\FinishRequestEvent;
use Symfony\Component\HttpKernel\Event\RequestEvent;
use Symfony\Component\HttpKernel\Event\ResponseEvent;
use Symfony\Component\HttpKernel\KernelEvents;
use Symfony\Component\Routing\Exception\RouteNotFoundException;
use Symfony\Component\Routing\Generator\UrlGeneratorInterface;

/**
 * Symfony's part: asks for the limits at a controller when it is called, behind the firewall and #[IsGranted]. The controller finds
 * the decision in $request->attributes->get('ratelimit'), or as its argument `?Decision $ratelimit`. What it forwards to, or
 * renders, belongs to the same request.
 */
final class RateLimitListener implements EventSubscriberInterface
{
    /** After the router (32), so that the route is known; before the firewall (8), which answers logins by itself. */
    private const PRIORITY = 16;
    /** Behind all that may refuse the request before its controller is called. */
    private const LAST = -512;

    /** @var list<Limit> */
    private readonly array $always;
    /** @var \WeakMap<Request, list<Admission>> those whose answer does not exist yet */
    private \WeakMap $open;
    /** of the main request, for its sub-requests */
    private ?\WeakReference $main = null;
    /** @var list<Admission> those whose answer has not been sent yet */
    private array $answered = [];

    /** @param list<Limit|string> $always limits of every request that has a route; their endpoint is the route's name */
    public function __construct(
        private readonly Limiter $limiter,
        array $always = [],
        private readonly ?UrlGeneratorInterface $routes = null,
    ) {
        $this->always = array_map(Limit::of(...), array_values($always));
        $this->open = new \WeakMap();
    }

    public static function getSubscribedEvents(): array
    {
        return [
            KernelEvents::REQUEST => ['onRequest', self::PRIORITY],
            KernelEvents::CONTROLLER_ARGUMENTS => ['onController', self::LAST],
            KernelEvents::RESPONSE => 'onResponse',
            KernelEvents::FINISH_REQUEST => 'onFinish',
            KernelEvents::TERMINATE => 'onTerminate',
        ];
    }

    public function onRequest(RequestEvent $event): void
    {
        $request = $event->getRequest();
        if (!$event->isMainRequest()) {
            $visit = $this->main?->get();
            $visit === null || $request->attributes->set(Visit::ATTRIBUTE, $visit);
            return;
        }
        $this->main = \WeakReference::create(HttpFoundation::visit($request));
        if ($this->always !== []) {
            $admission = $this->admit($request, $this->always, self::routeOf($request));
            $admission->isRefused() && $event->setResponse(HttpFoundation::refusal($request, $admission));
        }
    }

    public function onController(ControllerArgumentsEvent $event): void
    {
        $request = $event->getRequest();
        $controller = $event->getController();
        $limits = self::limitsOf($controller);
        if ($limits === []) {
            return;
        }
        $route = self::routeOf($request);
        $this->refuseEqualNames($limits, $route);
        $admission = $this->admit($request, $limits, $route ?? self::nameOf($controller));
        if ($admission->isRefused()) {
            $event->setController(static fn () => HttpFoundation::refusal($request, $admission));
            return;
        }
        $arguments = $event->getArguments(); // which Symfony has found before
        foreach ((new \ReflectionFunction(\Closure::fromCallable($controller)))->getParameters() as $i => $parameter) {
            if ($parameter->getName() === HttpFoundation::ATTRIBUTE && array_key_exists($i, $arguments)) {
                $arguments[$i] = $request->attributes->get(HttpFoundation::ATTRIBUTE);
            }
        }
        $event->setArguments($arguments);
    }

    public function onResponse(ResponseEvent $event): void
    {
        $request = $event->getRequest();
        $admissions = $this->open[$request] ?? [];
        unset($this->open[$request]);
        array_push($this->answered, ...$admissions);
        foreach ($admissions as $admission) {
            $admission->settle($request, $event->getResponse());
        }
        if ($request->attributes->has(Visit::ATTRIBUTE)) {
            HttpFoundation::withFields($event->getResponse(), $request);
        }
    }

    public function onFinish(FinishRequestEvent $event): void
    {
        foreach ($this->open[$event->getRequest()] ?? [] as $admission) {
            $admission->end(); // an exception, and no answer
        }
        unset($this->open[$event->getRequest()]);
    }

    /** The answer has been sent: slots go back. */
    public function onTerminate(): void
    {
        foreach ($this->answered as $admission) {
            $admission->end();
        }
        $this->answered = [];
    }

    /** @param list<Limit> $limits */
    private function admit(Request $request, array $limits, ?string $endpoint): Admission
    {
        $admission = $this->limiter->admit($limits, $request, $endpoint, HttpFoundation::visit($request));
        if (!$admission->isRefused()) {
            HttpFoundation::tell($request);
            $this->open[$request] = [...$this->open[$request] ?? [], $admission];
        }
        return $admission;
    }

    /** One name for all languages of a route. */
    private static function routeOf(Request $request): ?string
    {
        return $request->attributes->get('_canonical_route') ?? $request->attributes->get('_route');
    }

    /**
     * A name that is written at one controller must not be that of another one's route: they would share a counter.
     *
     * @param list<Limit> $limits
     */
    private function refuseEqualNames(array $limits, ?string $route): void
    {
        foreach ($limits as $limit) {
            if ($limit->endpoint === null || $limit->endpoint === $route || $this->routes === null) {
                continue;
            }
            try {
                $this->routes->generate($limit->endpoint);
            } catch (RouteNotFoundException) {
                continue;
            } catch (\InvalidArgumentException) {
                // there is such a route, and it has parameters
            }
            throw new \LogicException("the endpoint \"{$limit->endpoint}\" is written at a limit of the route \"$route\", and another route"
                . ' has this name: they would share a counter; write another one');
        }
    }

    /** @return list<Limit> those of the class, and of the method or function */
    private static function limitsOf(callable $controller): array
    {
        if ($controller instanceof \Closure || is_string($controller)) {
            return self::limitsAt([new \ReflectionFunction($controller)]);
        }
        [$object, $name] = is_array($controller) ? $controller : [$controller, '__invoke'];
        $classes = $methods = [];
        for ($class = new \ReflectionClass($object); $class !== false; $class = $class->getParentClass()) {
            $classes[] = $class;
            $method = $class->hasMethod($name) ? $class->getMethod($name) : null;
            if ($method?->class === $class->name) {
                $methods[] = $method;
            }
        }
        return [...self::limitsAt($classes), ...self::limitsAt($methods)];
    }

    /**
     * Attributes are not inherited, but a limit of a base class must not end with a derived one, or with a proxy of the
     * container's: the nearest that has limits counts.
     *
     * @param list<\ReflectionClass|\ReflectionFunctionAbstract> $places from the class to its ancestors
     * @return list<Limit>
     */
    private static function limitsAt(array $places): array
    {
        foreach ($places as $place) {
            $found = $place->getAttributes(RateLimit::class);
            if ($found !== []) {
                return array_map(static fn (\ReflectionAttribute $one): Limit => $one->newInstance()->limit, $found);
            }
        }
        return [];
    }

    /** A closure has no name of its own. */
    private static function nameOf(callable $controller): ?string
    {
        return match (true) {
            $controller instanceof \Closure => null,
            is_string($controller) => $controller,
            is_array($controller) => (is_object($controller[0]) ? $controller[0]::class : $controller[0]) . "::{$controller[1]}",
            default => $controller::class,
        };
    }
}
