"""test_middleware.py: what each limit of a middleware chooses for itself, with a fake in place of the daemon."""

import pytest
from gateways import daemon_with
from scripts import AROUND, run

START = AROUND + """
use Ratelimitd\\{FakeLimiter, Key, Limit, Limiter, Middleware};
$fake = new FakeLimiter();
$log = [];
function statuses(Middleware ...$all): string {
    global $request, $app;
    return implode(' ', array_map(fn ($one) => $one->process($request, $app)->getStatusCode(), $all));
}
function with(mixed $onError, Limit ...$limits): Middleware {
    global $fake, $log;
    $limiter = new Limiter($fake, onError: $onError, log: function ($line) use (&$log) { $log[] = $line; });
    return new Middleware($limiter, $limits, endpoint: 'GET /search');
}
$any = fn () => 'k';
"""


def php(code, config=None):
    if config is None:
        return run(START + code, "/nonexistent/socket")
    daemon = daemon_with(config)
    try:
        return run(START + code, daemon.socket)
    finally:
        daemon.close()


def test_the_strictest_of_the_limits_that_apply_decides_without_an_answer():
    assert php("""
$fake->unavailable('timeout');
function deny_timeouts($failure) { return $failure->kind === 'timeout' ? 'deny' : 'allow'; }
$web = new Limit(policy: 'web', key: $any);
echo statuses(
    with('allow', $web, new Limit(policy: 'login', key: $any, onError: 'deny')),
    with('allow', $web, new Limit(policy: 'login', key: $any, onError: fn () => 'deny')),
    with('deny_timeouts', $web),
    with('deny', new Limit(policy: 'web', key: $any, onError: fn () => 'allow')),
    with('allow', $web, new Limit(policy: 'login', key: $any, onError: 'deny', skip: fn () => true)),
    with('allow', $web, new Limit(policy: 'login', key: $any, onError: 'deny', enabled: false)),
);
""") == "503 503 503 200 200 200"


@pytest.mark.parametrize("code, message", [
    ("$fake->unavailable(); statuses(with(fn () => true, new Limit(policy: 'web', key: $any)));", "onError gave true"),
    ("new Limit(policy: 'web', onError: 'open');", "onError is"),
    ("new Limit(policy: 'web', headers: 'all');", "headers is ietf"),
    ("new Limiter($fake, reset: 'never');", "reset is delta or epoch"),
    ("new Middleware($fake, []);", "limits nothing"),
    ("new Middleware($fake, '10/5s');", "endpoint"),
    ("statuses(new Middleware($fake, new Limit(fn () => '10/5s', key: $any)));", "endpoint"),
    ("new Limit('web', key: 'misspelt');", 'key is a function, not "misspelt"'),
    ("new Limit('10/5s', endpoint: '');", "endpoint is a text"),
    ("statuses(with('allow', new Limit('web', key: fn () => ['x'])));", "not array"),
    ("statuses(with('allow', new Limit('web', key: $any, cost: fn () => -1)));", "cost is a whole number")])
def test_a_mistake_is_an_exception(code, message):
    assert message in php(f"try {{ {code} }} catch (\\Exception $wrong) {{ echo $wrong->getMessage(); }}")


def test_each_limit_chooses_its_header_fields():
    assert php("""
$response = with('allow',
    new Limit(policy: 'web', key: $any, headers: 'both'),
    new Limit(policy: 'login', key: $any, headers: 'none'),
    new Limit(policy: 'report', key: $any, slot: true, headers: 'legacy'),
    new Limit(policy: 'mail', key: $any),
)->process($request, $app);
echo $response->getHeaderLine('RateLimit'), ' ', $response->getHeaderLine('X-RateLimit-Limit');
""") == '"web";r=99;t=60, "mail";r=99;t=60 100'


def test_the_limit_that_denied_chooses_the_answer():
    assert php("""
$fake->deny('login', 3000);
$all = [new Limit(policy: 'web', key: $any, respond: fn () => new Nyholm\\Psr7\\Response(418)),
    new Limit(policy: 'login', key: $any)];
$own = fn ($request, $decision) => new Nyholm\\Psr7\\Response(403, [], "denied by {$decision->boundBy}");
$response = (new Middleware(new Limiter($fake, respond: $own), $all))->process($request, $app);
echo $response->getStatusCode(), ' ', $response->getBody(), ' ', $response->getHeaderLine('Retry-After');
""") == "403 denied by login 3"


def test_what_depends_on_the_answer_has_the_cost_of_the_request():
    assert php("""
$limit = new Limit(policy: 'login', key: $any, cost: fn () => 7, chargeWhen: fn ($response) => false);
echo statuses(with('allow', $limit)), ' ', json_encode($fake->calls);
""") == '200 [["reserve","login","k",7]]'


def test_failures_are_logged_at_most_every_ten_seconds_with_what_follows():
    assert php("""
$fake->unavailable();
$web = with('allow', new Limit(policy: 'web', key: $any));
statuses($web, $web, with('deny', new Limit('web', key: $any)));
echo json_encode($log);
""") == '["no decision from the rate limiter: the fake is unreachable; requests pass"]'


def test_the_line_says_that_requests_are_denied():
    assert php("""
$fake->unavailable();
statuses(with('deny', new Limit('web', key: $any)));
echo json_encode($log);
""") == '["no decision from the rate limiter: the fake is unreachable; requests are answered 503"]'


FAILING_CLIENT = """
final class Failing extends Ratelimitd\\Client {
    public array $calls = [];
    public function __construct(private Closure $fails) { parent::__construct('fake'); }
    public function call(string $method, array $params, ?float $timeout = null, bool $resend = false): array {
        $this->calls[] = $method;
        ($this->fails)($method);
        return ['slot' => 's', 'reservation' => 'r', 'released' => true, 'allowed' => true, 'limit' => 9, 'remaining' => 8,
            'retry_after_ms' => 0, 'reset_after_ms' => 0, 'source' => 'memory'];
    }
}
$fake = new Failing(fn ($method) => $method === 'check' ? throw new Ratelimitd\\Refused('UNKNOWN_POLICY', 'no such policy') : null);
$slot = new Limit('slow', key: $any, slot: true);
$login = new Limit('login', key: $any, chargeWhen: fn () => true);
function caught(Middleware $one): void {
    global $request, $app, $fake;
    try { $one->process($request, $app); } catch (Throwable $failure) { echo $failure->getMessage(), ': ', implode(' ', $fake->calls); }
}
"""


def test_an_error_in_a_later_limit_gives_back_what_earlier_ones_hold():
    assert php(FAILING_CLIENT + "caught(with('allow', $slot, $login, new Limit('wbe', key: $any)));") == \
        "no such policy: acquire reserve check release cancel"


def test_an_error_in_on_error_gives_back_what_earlier_limits_hold():
    assert php(FAILING_CLIENT + """
$fake = new Failing(fn ($method) => $method === 'check' ? throw new Ratelimitd\\Unavailable('timeout', 'no answer') : null);
caught(with(fn () => throw new Exception('onError'), $slot, new Limit('web', key: $any)));
""") == "onError: acquire check release"


def test_an_error_in_charge_when_gives_back_what_all_limits_hold():
    assert php(FAILING_CLIENT + """
caught(with('allow', $slot, $login, new Limit('guess', key: $any, chargeWhen: fn () => throw new Exception('mine'))));
""") == "mine: acquire reserve reserve settle release cancel"


def test_an_error_in_the_handler_gives_back_what_limits_hold():
    assert php(FAILING_CLIENT + """
$app->work = fn () => throw new Exception('handler');
caught(with('allow', $slot, $login));
""") == "handler: acquire reserve release cancel"


def test_the_same_policy_and_key_are_sent_once():
    assert php("statuses(with('allow', new Limit('web', key: $any), new Limit('web', key: $any, cost: 3))); echo json_encode($fake->calls);") == \
        '[["check","web","k",3]]', "the highest cost counts"


def test_the_handler_has_the_decision_with_least_left_also_of_two_middlewares():
    assert php("""
$app->work = fn ($request) => new Nyholm\\Psr7\\Response(200, [], $request->getAttribute('ratelimit')?->of ?? 'none');
final class Inner implements Psr\\Http\\Server\\RequestHandlerInterface {
    public function __construct(private $middleware, private $next) {}
    public function handle($request): Psr\\Http\\Message\\ResponseInterface { return $this->middleware->process($request, $this->next); }
}
$daemon = new Ratelimitd\\Client(timeout: 5);
$few = new Middleware(new Limiter($daemon, key: $any, service: ''), '2/5s', endpoint: 'GET /few');
$many = new Middleware(new Limiter($daemon, key: $any), ['web', 'login']);
foreach ([[$few, $many], [$many, $few], [$many, $many]] as [$outer, $inner]) {
    echo preg_replace('/-.*/', '', $outer->process($request, new Inner($inner, $app))->getBody()), ' ';
}
""", "policies: {web: {algorithm: fixed_window, limit: 100, window: 1m}, login: {algorithm: fixed_window, limit: 50, window: 1m}}\n"
     "inline: {allow: true}") == "inline inline login "


def test_without_a_decision_the_attribute_is_null():
    assert php("""
$fake->unavailable();
$app->work = fn ($request) => new Nyholm\\Psr7\\Response(200, [], json_encode($request->getAttribute('ratelimit', 'not there')));
echo with('allow', new Limit('web', key: $any))->process($request, $app)->getBody();
""") == "null"


def test_own_fields_of_the_application_are_replaced_and_lists_of_limits_joined():
    assert php("""
$app->work = fn () => (new Nyholm\\Psr7\\Response(200))->withHeader('RateLimit', '"other";r=1')->withHeader('X-RateLimit-Limit', '7');
$response = with('allow', new Limit('web', key: $any, headers: 'both'))->process($request, $app);
echo $response->getHeaderLine('RateLimit'), ' ', $response->getHeaderLine('X-RateLimit-Limit');
""") == '"other";r=1, "web";r=99;t=60 100'


def test_a_name_that_is_a_function_of_php_too_is_a_policy():
    assert php("function web() { return 'other'; } statuses(with('allow', new Limit('web', key: $any))); echo $fake->calls[0][1];") == "web"


def test_the_service_is_said_once_and_stands_in_front():
    assert php("""
$limiter = new Limiter($fake, key: $any, service: 'a|b', log: function ($line) use (&$log) { $log[] = $line; });
$one = new Middleware($limiter, '10/5s', endpoint: 'GET /search');
statuses($one, $one);
echo json_encode($log), ' ', $fake->calls[0][2];
""") == '["limits at endpoints count for the service \\"a|b\\" (the option service)"] a%7Cb|GET \\/search|k'.replace("\\/", "/")


@pytest.mark.parametrize("name, key", [("acme/shop", "acme/shop|GET /search|k"), ("__root__", "GET /search|k")])
def test_the_service_is_composers_name_of_the_application(name, key):
    assert php("""
class_alias(get_class(new class { public static function getRootPackage() { return ['name' => '%s']; } }), 'Composer\\InstalledVersions');
statuses(with('allow', new Limit('10/5s', key: $any)));
echo $fake->calls[0][2];
""" % name) == key


def test_an_untrusted_forwarded_address_is_warned_of_once():
    assert php("""
ini_set('error_log', '/dev/stdout');
$address = Key::ip();
echo $address($request), ' ', $address($request), ' ', Key::ip(trusted: 1)($request);
""").count("no proxy is trusted") == 1


def test_a_delay_is_a_denial_unless_several_limits_are_decided_together():
    daemon = daemon_with("policies: {shaped: {algorithm: leaky_bucket, limit: 5, window: 1s, burst: 1, max_wait: 10s}, "
                         "web: {algorithm: fixed_window, limit: 100, window: 1m}}")
    try:
        assert run(START + """
$alone = new Middleware(new Ratelimitd\\Client(timeout: 10), new Limit(policy: 'shaped', key: $any));
echo statuses($alone, $alone), ' ';
$together = [new Limit(policy: 'shaped', key: fn () => 'other'), new Limit(policy: 'web', key: $any)];
$both = new Middleware(new Ratelimitd\\Client(timeout: 10), $together);
$started = hrtime(true);
echo statuses($both, $both), ' ', hrtime(true) - $started >= 200e6 ? 'late' : 'early';
""", daemon.socket) == "200 429 200 200 late"
    finally:
        daemon.close()
