"""test_middleware.py: what each limit of a middleware chooses for itself, with a fake in place of the daemon."""

import pytest
from gateways import daemon_with
from scripts import AROUND, run

START = AROUND + """
require 'src/FakeLimiter.php';
use Ratelimitd\\{FakeLimiter, Limit, Middleware};
$fake = new FakeLimiter();
$log = [];
function statuses(Middleware ...$all): string {
    global $request, $app;
    return implode(' ', array_map(fn ($one) => $one->process($request, $app)->getStatusCode(), $all));
}
function with(mixed $onError, Limit ...$limits): Middleware {
    global $fake, $log;
    return new Middleware($fake, limits: $limits, onError: $onError, log: function ($line) use (&$log) { $log[] = $line; });
}
$any = fn () => 'k';
"""


def php(code):
    return run(START + code, "/nonexistent/socket")


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
    ("new Middleware($fake, policy: 'web', reset: 'never');", "reset is delta or epoch")])
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
$response = (new Middleware($fake, limits: $all, respond: $own))->process($request, $app);
echo $response->getStatusCode(), ' ', $response->getBody(), ' ', $response->getHeaderLine('Retry-After');
""") == "403 denied by login 3"


def test_what_depends_on_the_answer_has_the_cost_of_the_request():
    assert php("""
$limit = new Limit(policy: 'login', key: $any, cost: fn () => 7, chargeWhen: fn ($response) => false);
echo statuses(with('allow', $limit)), ' ', json_encode($fake->calls);
""") == '200 [["reserve","login","k",7]]'


@pytest.mark.parametrize("apcu, lines", [
    ("", 1),
    ("function apcu_add($name, $value, $seconds) { return $seconds !== 10; }", 0)])
def test_failures_are_logged_at_most_every_ten_seconds_by_apcu_where_it_is_there(apcu, lines):
    assert php(apcu + """
$fake->unavailable();
$web = with('allow', new Limit(policy: 'web', key: $any));
statuses($web, $web, $web);
echo count($log);
""") == str(lines)


def test_a_delay_is_a_denial_unless_several_limits_are_decided_together():
    daemon = daemon_with("policies: {shaped: {algorithm: leaky_bucket, limit: 5, window: 1s, burst: 1, max_wait: 10s}, "
                         "web: {algorithm: fixed_window, limit: 100, window: 1m}}")
    try:
        assert run(START + """
$alone = new Middleware(new Ratelimitd\\Client(timeout: 10), limits: [new Limit(policy: 'shaped', key: $any)]);
echo statuses($alone, $alone), ' ';
$together = [new Limit(policy: 'shaped', key: fn () => 'other'), new Limit(policy: 'web', key: $any)];
$both = new Middleware(new Ratelimitd\\Client(timeout: 10), limits: $together);
$started = hrtime(true);
echo statuses($both, $both), ' ', hrtime(true) - $started >= 200e6 ? 'late' : 'early';
""", daemon.socket) == "200 429 200 200 late"
    finally:
        daemon.close()
