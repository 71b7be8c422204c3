"""test_frameworks.py: the middlewares of Laravel and Symfony, with a fake in place of the daemon. The conformance suite runs
their example services."""

import pytest
from frameworks import LARAVEL, SYMFONY, needs_package
from gateways import EXTENSIONS
from scripts import run

IN_LARAVEL = LARAVEL + """
use Illuminate\\Http\\Request;
use Illuminate\\Support\\Facades\\Route;
use Ratelimitd\\{Client, FakeLimiter, Key, Limit};
use Ratelimitd\\Laravel\\RateLimit;
$fake = new FakeLimiter();
$app->instance(Client::class, $fake);
function keys() { global $fake; echo implode(', ', array_map(fn ($call) => implode(' ', [$call[0], is_array($call[1]) ? 'inline' : $call[1], $call[2]]), $fake->calls)); }
"""
IN_SYMFONY = SYMFONY.replace("new Ratelimitd\\Client(timeout: 5)", "$fake = new Ratelimitd\\FakeLimiter()") + """
use Ratelimitd\\{Key, Limit};
use Ratelimitd\\Symfony\\RateLimit;
use Symfony\\Component\\HttpFoundation\\{Request, Response};
function keys() { global $fake; echo implode(', ', array_map(fn ($call) => implode(' ', [$call[0], is_array($call[1]) ? 'inline' : $call[1], $call[2]]), $fake->calls)); }
"""

laravel = needs_package("Illuminate/autoload.php")
symfony = needs_package("Symfony/Bundle/FrameworkBundle/autoload.php")


def in_laravel(code):
    return run(IN_LARAVEL + code, "/nonexistent/socket", EXTENSIONS)


def in_symfony(code, before=""):
    return run(before + IN_SYMFONY + code, "/nonexistent/socket", EXTENSIONS)


# ---- Laravel

@laravel
def test_an_endpoint_of_laravel_is_the_methods_and_the_pattern_of_the_route():
    assert in_laravel("""
Route::get('/search/{q}', fn () => 'found')->middleware('ratelimitd:10/5s');
Route::any('/any', fn () => 'any')->middleware('ratelimitd:10/5s');
Route::domain('{tenant}.example.org')->get('/search', fn () => 'found')->middleware('ratelimitd:10/5s');
ask('GET', '/search/A'); ask('HEAD', '/search/b'); ask('GET', 'http://x.example.org/search'); ask('PUT', '/any'); ask('GET', '/any');
keys();
""").split("any 200 any ")[-1] == ", ".join([
        "check inline shop|GET /search/{q}|192.0.2.7", "check inline shop|GET /search/{q}|192.0.2.7",
        "check inline shop|GET {tenant}.example.org/search|192.0.2.7",
        *["check inline shop|/any|192.0.2.7"] * 2]).replace("any 200 ", "")


@laravel
@pytest.mark.parametrize("code, error", [
    ("Route::get('/a', fn () => 'a')->middleware('ratelimitd');", "InvalidArgumentException"),
    ("Route::get('/a', fn () => 'a')->middleware('ratelimitd:10 per minute');", "InvalidArgumentException"),
    ("$app->make(Illuminate\\Contracts\\Http\\Kernel::class)->pushMiddleware(RateLimit::class . ':10/5s');", "LogicException")])
def test_a_limit_of_laravel_that_cannot_take_effect_is_an_error(code, error):
    assert in_laravel(code + "ask('GET', '/a');") == f"{error} 500 "


@laravel
def test_laravels_slot_is_held_until_the_answer_has_been_sent_and_a_failed_handler_charges_nothing():
    assert in_laravel("""
RateLimit::for('both', new Limit('slow', key: fn () => 'k', slot: true),
    new Limit('login', key: fn () => 'k', chargeWhen: fn ($response) => $response->getStatusCode() < 500));
Route::get('/fails', fn () => throw new RuntimeException('mine'))->middleware('ratelimitd:both');
final class Shown extends Client {
    public function __construct() { parent::__construct('fake'); }
    public function call(string $method, array $params, ?float $timeout = null, bool $resend = false): array {
        global $fake;
        echo $method, ' ';
        return $fake->call($method, $params);
    }
}
$app->instance(Client::class, new Shown());
ask('GET', '/fails');
""") == "acquire reserve RuntimeException cancel 500 release "


@laravel
def test_laravels_own_trusted_proxies_count():
    assert in_laravel("""
Route::get('/a', fn () => 'a')->middleware('ratelimitd:web');
Request::setTrustedProxies(['192.0.2.7'], Request::HEADER_X_FORWARDED_FOR);
ask('GET', '/a', [], ['HTTP_X_FORWARDED_FOR' => '203.0.113.5, 198.51.100.1']);
keys();
""") == "200 a check web 198.51.100.1"


@laravel
def test_proxies_that_a_key_names_are_skipped_from_the_connection_on():
    assert in_laravel("""
RateLimit::for('behind', new Limit('web', key: Key::ip(trusted: 2)));
Route::get('/a', fn () => 'a')->middleware('ratelimitd:behind');
Request::setTrustedProxies(['192.0.2.7'], Request::HEADER_X_FORWARDED_FOR);
ask('GET', '/a', [], ['HTTP_X_FORWARDED_FOR' => '203.0.113.5, 198.51.100.1']);
keys();
""") == "200 a check web 203.0.113.5"


LISTED = """
final class Listed extends Client {
    public function policies(?float $timeout = null): array { return [['name' => 'web']]; }
}
RateLimit::for('some', 'web', 'wbe');
function verify() {
    try { RateLimit::verify(new Ratelimitd\\Limiter(new Listed()), app('router')); echo 'fine'; }
    catch (Ratelimitd\\Refused $refused) { echo implode(' ', $refused->missing); }
    catch (InvalidArgumentException $wrong) { echo get_class($wrong); }
}
"""


@laravel
@pytest.mark.parametrize("route, found", [
    ("'ratelimitd:some'", "wbe"),
    ("['ratelimitd:web,tenant', 'web']", "wbe tenant"),
    ("'ratelimitd:10 per minute'", "InvalidArgumentException"),
    ("'ratelimitd'", "InvalidArgumentException")])
def test_verify_names_the_policies_of_laravels_limits_and_routes(route, found):
    assert in_laravel(LISTED + f"Route::get('/a', fn () => 'a')->middleware({route}); verify();") == found


# ---- Symfony

CONTROLLERS = """
#[RateLimit('web')]
class Base {
    #[RateLimit('10/5s')]
    public function search(): Response { return new Response('found'); }
    public function other(): Response { return new Response('other'); }
}
class Derived extends Base { public function search(): Response { return new Response('derived'); } }
final class One { #[RateLimit('10/5s')] public function __invoke() { return new Response('one'); } }
route('search', '/search', [new Base(), 'search']);
route('other', '/other', [new Base(), 'other']);
route('derived', '/derived', [new Derived(), 'search']);
route('one', '/one', new One());
route('closure', '/closure', #[RateLimit('10/5s')] fn () => new Response('closure'));
"""


@symfony
@pytest.mark.parametrize("path, asked", [
    ("/search", "check_all web 192.0.2.7, check_all inline shop|search|192.0.2.7"),
    ("/other", "check web 192.0.2.7"),
    ("/derived", "check_all web 192.0.2.7, check_all inline shop|derived|192.0.2.7"),
    ("/one", "check inline shop|one|192.0.2.7"),
    ("/closure", "check inline shop|closure|192.0.2.7")])
def test_limits_of_symfony_stand_at_classes_and_methods_also_of_a_base_class(path, asked):
    assert in_symfony(CONTROLLERS + f"ask('GET', '{path}'); echo '| '; keys();").split("| ")[1] == asked


@symfony
def test_limits_of_every_route_are_asked_before_a_firewall_would_answer():
    assert in_symfony("""
$dispatcher->addListener('kernel.request', fn ($event) => $event->setResponse(new Response('firewall')), 8);
route('login', '/login', fn () => new Response('login'));
route('other', '/other', fn () => new Response('other'));
$fake->deny('login', 3000);
ask('POST', '/login'); ask('GET', '/other'); ask('GET', '/unknown'); keys();
""", """
require_once 'src/autoload.php';
$always = [new Ratelimitd\\Limit(fn ($request) => $request->attributes->get('_route') === 'login' ? 'login' : Ratelimitd\\Limit::NOT_LIMITED), '10/5s'];
""") == \
        "429 200 firewall Symfony\\Component\\HttpKernel\\Exception\\NotFoundHttpException 500 " \
        "check_all login 192.0.2.7, check_all inline shop|login|192.0.2.7, check inline shop|other|192.0.2.7"


SHOWN = """
require_once 'src/autoload.php';
final class Shown extends Ratelimitd\\Client {
    public function __construct() { parent::__construct('fake'); }
    public function call(string $method, array $params, ?float $timeout = null, bool $resend = false): array {
        global $fake;
        $fake ??= new Ratelimitd\\FakeLimiter();
        echo $method, ' ';
        return $fake->call($method, $params);
    }
}
"""


@symfony
@pytest.mark.parametrize("caught, said", [
    ("true", "acquire reserve RuntimeException cancel 500 release "),
    ("false", "acquire reserve release cancel mine ")])
def test_symfonys_slot_is_held_until_the_answer_has_been_sent_and_a_failed_controller_charges_nothing(caught, said):
    assert run(SHOWN + IN_SYMFONY.replace("$fake = new Ratelimitd\\FakeLimiter()", "new Shown()").replace(
        "$kernel->handle($request)", f"$kernel->handle($request, 1, {caught})") + """
function k() { return 'k'; }
function works($response) { return $response->getStatusCode() < 500; }
final class Failing {
    #[RateLimit('slow', key: 'k', slot: true)]
    #[RateLimit('login', key: 'k', chargeWhen: 'works')]
    public function __invoke() { throw new RuntimeException('mine'); }
}
route('fails', '/fails', new Failing());
try { ask('GET', '/fails'); } catch (RuntimeException $failure) { echo $failure->getMessage(), ' '; }
""", "/nonexistent/socket", EXTENSIONS) == said


@symfony
def test_a_limited_controller_is_limited_also_if_another_one_forwards_to_it():
    assert in_symfony(CONTROLLERS + """
$fake->deny('web');
route('outer', '/outer', function () {
    global $kernel;
    $request = Request::create('/other', 'GET', [], [], [], ['REMOTE_ADDR' => '192.0.2.7']);
    return $kernel->handle($request, Symfony\\Component\\HttpKernel\\HttpKernelInterface::SUB_REQUEST);
});
ask('GET', '/outer');
""") == "429 "


@symfony
def test_symfonys_own_trusted_proxies_count():
    assert in_symfony(CONTROLLERS + """
Request::setTrustedProxies(['192.0.2.7'], Request::HEADER_X_FORWARDED_FOR);
ask('GET', '/other', [], ['HTTP_X_FORWARDED_FOR' => '203.0.113.5, 2001:db8:0:1::7']);
keys();
""") == "200 other check web 2001:db8:0:1::/64"


BUNDLE = """
require 'Symfony/Bundle/FrameworkBundle/autoload.php';
require_once 'src/autoload.php';
$container = new Symfony\\Component\\DependencyInjection\\ContainerBuilder();
try {
    (new Ratelimitd\\Symfony\\RatelimitdBundle())->getContainerExtension()->load([%s], $container);
    $container->getDefinition(Ratelimitd\\Symfony\\RateLimitListener::class)->setPublic(true);
    $container->compile();
    echo get_class($container->get(Ratelimitd\\Symfony\\RateLimitListener::class));
} catch (Exception $wrong) { echo $wrong->getMessage(); }
"""


@symfony
@pytest.mark.parametrize("settings, found", [
    ("['always' => ['web', '10/5s'], 'service' => 'shop', 'on_error' => 'deny', 'timeout' => 1]", "RateLimitListener"),
    ("['on_eror' => 'deny']", 'Did you mean "on_error"'),
    ("['always' => ['10 per minute']]", "is neither the name of a policy"),
    ("['timeout' => 0]", "timeout is a number of seconds above 0")])
def test_the_bundle_registers_the_listener_and_refuses_mistakes(settings, found):
    assert found in run(BUNDLE % settings, "/nonexistent/socket", EXTENSIONS)
