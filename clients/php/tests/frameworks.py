"""frameworks.py: a small application in Laravel, and one in Symfony, for PHP code that the tests run on the command line."""

from pathlib import Path

import pytest
from gateways import PHP_LIBRARIES


def needs_package(path):
    """The system has no package of some frameworks, and the registry of PHP's packages is not for tests."""
    is_there = any((Path(folder) / path).exists() for folder in PHP_LIBRARIES.split(":"))
    return pytest.mark.skipif(not is_there, reason=f"this system has no package with {path}")


# ask(METHOD, PATH, FORM, SERVER) prints the status, and the body of what was found.
LARAVEL = """
use Illuminate\\Config\\Repository;
use Illuminate\\Foundation\\Application;
error_reporting(E_ALL & ~E_DEPRECATED); // Laravel 8 is older than this PHP
require 'Illuminate/autoload.php';
require_once 'src/autoload.php';
$app = new Application(__DIR__);
$app->instance('config', new Repository(['app' => ['name' => 'shop', 'debug' => true], 'logging' => [
    'default' => 'none', 'channels' => ['none' => ['driver' => 'monolog', 'handler' => Monolog\\Handler\\NullHandler::class]]],
    'view' => ['paths' => [], 'compiled' => sys_get_temp_dir()]]));
$app->instance('env', 'testing');
class TheKernel extends Illuminate\\Foundation\\Http\\Kernel { protected $bootstrappers = []; }
class TheHandler extends Illuminate\\Foundation\\Exceptions\\Handler {
    public function report(Throwable $e) { echo get_class($e), ' '; }
}
$app->singleton(Illuminate\\Contracts\\Http\\Kernel::class, TheKernel::class);
$app->singleton(Illuminate\\Contracts\\Debug\\ExceptionHandler::class, TheHandler::class);
$app->singleton(Illuminate\\Contracts\\Routing\\ResponseFactory::class, fn () => new class {
    public function make($body, $status = 200, $fields = []) { return new Illuminate\\Http\\Response($body, $status, $fields); }
});
Illuminate\\Support\\Facades\\Facade::setFacadeApplication($app);
$app->register(Ratelimitd\\Laravel\\ServiceProvider::class);
$app->boot();
function ask($method, $path, $form = [], $server = []) {
    global $app;
    $request = Illuminate\\Http\\Request::create($path, $method, $form, [], [], ['REMOTE_ADDR' => '192.0.2.7', ...$server]);
    $kernel = $app->make(Illuminate\\Contracts\\Http\\Kernel::class);
    $response = $kernel->handle($request);
    echo $response->getStatusCode(), ' ', $response->isOk() ? $response->getContent() . ' ' : '';
    $kernel->terminate($request, $response);
    return $response;
}
// THE SNIPPET
"""

# The same on Symfony's HttpKernel; route(NAME, PATH, CONTROLLER) comes first. $listener is the middleware.
SYMFONY = """
use Symfony\\Component\\EventDispatcher\\EventDispatcher;
use Symfony\\Component\\HttpKernel\\HttpKernel;
use Symfony\\Component\\Routing\\RouteCollection;
require 'Symfony/Bundle/FrameworkBundle/autoload.php';
require_once 'src/autoload.php';
$routes = new RouteCollection();
$stack = new Symfony\\Component\\HttpFoundation\\RequestStack();
$matcher = new Symfony\\Component\\Routing\\Matcher\\UrlMatcher($routes, new Symfony\\Component\\Routing\\RequestContext());
$dispatcher = new EventDispatcher();
$dispatcher->addSubscriber(new Symfony\\Component\\HttpKernel\\EventListener\\RouterListener($matcher, $stack));
$limiter = new Ratelimitd\\Limiter(new Ratelimitd\\Client(timeout: 5), service: 'shop', log: fn () => null);
$listener = new Ratelimitd\\Symfony\\RateLimitListener($limiter, $always ?? []);
$dispatcher->addSubscriber($listener);
$dispatcher->addListener('kernel.exception', function ($event) {
    echo get_class($event->getThrowable()), ' ';
    $event->setResponse(new Symfony\\Component\\HttpFoundation\\Response('', 500));
});
$kernel = new HttpKernel($dispatcher, new Symfony\\Component\\HttpKernel\\Controller\\ControllerResolver(), $stack);
function route($name, $path, $controller) {
    global $routes;
    $routes->add($name, new Symfony\\Component\\Routing\\Route($path, ['_controller' => $controller]));
}
function ask($method, $path, $form = [], $server = []) {
    global $kernel;
    $request = Symfony\\Component\\HttpFoundation\\Request::create($path, $method, $form, [], [], ['REMOTE_ADDR' => '192.0.2.7', ...$server]);
    $response = $kernel->handle($request);
    echo $response->getStatusCode(), ' ', $response->isOk() ? $response->getContent() . ' ' : '';
    $kernel->terminate($request, $response);
    return $response;
}
"""
