"""test_walked_around.py: what a visitor, or an ordinary program, must not get past; as far as only PHP has it. The rest is in
clients/conformance/attacks.yaml."""

import contextlib
import socket
import threading
import time

import pytest
from frameworks import SYMFONY, needs_package
from gateways import EXTENSIONS
from scripts import AROUND, run

NESTED = AROUND + """
use Ratelimitd\\{Client, FakeLimiter, Key, Limit, Limiter, Middleware};
use Psr\\Http\\Server\\RequestHandlerInterface;
final class Next implements RequestHandlerInterface {
    public function __construct(private Middleware $inner, private RequestHandlerInterface $app) {}
    public function handle($request): Psr\\Http\\Message\\ResponseInterface { return $this->inner->process($request, $this->app); }
}
$lines = [];
$log = function ($line) use (&$lines) { $lines[] = $line; };
$limiter = new Limiter(new Client(timeout: 10), key: fn () => 'k', log: $log);
function nested($outer, $inner) {
    global $limiter, $request, $app;
    return (new Middleware($limiter, $outer, endpoint: 'all'))->process($request, new Next(new Middleware($limiter, $inner, endpoint: 'one'), $app));
}
"""


class Flooding:
    """A daemon that, after its first answer, sends as much as somebody reads: an array of arrays, and never its end."""

    def __init__(self, path):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(8)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            one, _ = self.listener.accept()
            threading.Thread(target=self._serve, args=[one], daemon=True).start()

    @staticmethod
    def _serve(one):
        with one, contextlib.suppress(OSError):
            one.recv(65536)
            one.sendall(b"\x94\x01\x01\xc0")
            while True:
                one.sendall(b"\xdc\x40\x00" + b"\x01" * 0x3FFF + b"\x90")


@pytest.mark.parametrize("calls", [1, 3])
def test_the_timeout_holds_while_much_keeps_coming(tmp_path, calls):
    """The clock bounds the call as a whole: several of 0.1 s took 4.8 s. Two seconds for each are for a busy machine."""
    Flooding(tmp_path / "socket")
    begun = time.monotonic()
    found = run(f"""
require 'src/autoload.php';
$client = new Ratelimitd\\Client(timeout: 0.1);
for ($i = 0; $i < {calls}; $i++) {{
    try {{ $client->check('web', 'k'); echo 'answered '; }} catch (Ratelimitd\\Unavailable $failure) {{ echo $failure->kind, ' '; }}
}}
""", str(tmp_path / "socket"))
    assert set(found.split()) <= {"timeout", "protocol"} and found
    assert time.monotonic() - begun < 2 * calls + 2


@pytest.mark.parametrize("timeout", ["INF", "NAN", "0.0", "-1.0"])
def test_an_endless_timeout_is_refused(timeout):
    assert run(f"""
require 'src/autoload.php';
try {{ new Ratelimitd\\Client(timeout: {timeout}); echo 'made'; }} catch (InvalidArgumentException $wrong) {{ echo $wrong->getMessage(); }}
""", "/nonexistent/socket").startswith("timeout is a number of seconds above 0, and not endless")


def test_a_remembered_denial_gives_back_what_the_outer_place_charged(daemon):
    assert run(NESTED.replace("timeout: 10", "timeout: 10, rememberDenials: 60") + """
for ($i = 0; $i < 6; $i++) { echo nested('web', '2/m')->getStatusCode(), ' '; }
echo $limiter->client->peek('web', 'k')->remaining;
""", daemon.socket) == "200 200 429 429 429 429 98"


def test_a_slot_of_an_outer_place_goes_back_when_an_inner_one_refuses(daemon):
    assert run(NESTED + """
nested('2/m', 'web'); nested('2/m', 'web');
$held = fn () => nested(new Limit('slow', slot: true), [new Limit(['algorithm' => 'fixed_window', 'limit' => 0, 'window' => '1m'])]);
echo $held()->getStatusCode(), ' ', $limiter->client->stats()['slots'];
""", daemon.socket) == "429 0"


def test_a_reservation_of_an_outer_place_is_cancelled_when_an_inner_one_refuses(daemon):
    assert run(NESTED + """
$outer = new Limit('web', chargeWhen: fn () => true);
echo nested($outer, new Limit('tenant', key: fn () => null))->getStatusCode(), ' ', $limiter->client->peek('web', 'k')->remaining, ' ', $lines[0];
""", daemon.socket) == "503 100 no key for a limit of one: such requests are answered 503 (NOT_LIMITED switches a limit off)"


@pytest.mark.parametrize("key", ["fn () => null", "fn () => ''", "Key::composite('a', fn () => null)", "Key::composite(fn () => '', 'a')",
                                 "fn () => Key::user('', 'a')"])
def test_no_key_is_503_and_only_allow_at_the_limit_leaves_it_out(key):
    assert run(NESTED + f"""
foreach ([null, 'allow', fn () => 'allow'] as $rule) {{
    $limiter = new Limiter(new FakeLimiter(), onError: 'allow', log: $log);
    echo (new Middleware($limiter, new Limit('web', key: {key}, onError: $rule)))->process($request, $app)->getStatusCode(), ' ';
}}
""", "/nonexistent/socket") == "503 200 503 "


def test_a_written_endpoint_needs_no_other_name(daemon):
    assert run(NESTED + """
foreach (['all', 'one', 'all'] as $name) {
    echo (new Middleware($limiter, new Limit('2/m', endpoint: $name)))->process($request, $app)->getHeaderLine('RateLimit'), ' ';
}
""", daemon.socket).count(";r=1;") == 2


@pytest.mark.parametrize("given, units", [("true", 1), ("false", 0), ("5", 5), ("0", 0), ("2.0", 2)])
@pytest.mark.parametrize("policy", ["'web'", "'100/m'"])
def test_charge_when_may_give_a_number(daemon, policy, given, units):
    assert run(NESTED + f"""
$own = new Limit({policy}, chargeWhen: fn () => {given});
(new Middleware($limiter, $own, endpoint: 'one'))->process($request, $app);
echo (new Middleware($limiter, {policy}, endpoint: 'one'))->process($request, $app)->getHeaderLine('RateLimit');
""", daemon.socket).split(";")[1] == f"r={99 - units}"


@pytest.mark.parametrize("given", ["-1", "1.5", "NAN"])
def test_charge_when_that_gives_no_number_of_units_is_an_error(daemon, given):
    assert run(NESTED + f"""
try {{ (new Middleware($limiter, new Limit('web', chargeWhen: fn () => {given})))->process($request, $app); echo 'passed'; }}
catch (InvalidArgumentException $wrong) {{ echo $limiter->client->peek('web', 'k')->remaining; }}
""", daemon.socket) == "100"


def test_the_span_of_opentelemetry_has_the_decision(daemon):
    assert run(NESTED + """
eval('namespace OpenTelemetry\\API\\Trace; final class Span {
    public static function getCurrent() { return new self(); }
    public function setAttribute($name, $value) { echo "$name=$value "; return $this; }
}');
nested('web', new Limit(limit: 0, window: '1m', name: 'shut'));
""", daemon.socket) == "ratelimit.policy=web ratelimit.result=allowed ratelimit.source=memory " \
        "ratelimit.policy=shut ratelimit.result=denied ratelimit.source=memory "


@needs_package("Symfony/Bundle/FrameworkBundle/autoload.php")
def test_what_counts_denials_stays_charged_at_an_earlier_place_of_symfony(daemon):
    """Limits of a class and of its method are asked together. Those of all routes are a place of their own."""
    always = """
require_once 'src/autoload.php';
$strict = ['algorithm' => 'sliding_log', 'limit' => 10, 'window' => '1m', 'count_denied' => true];
$always = [new Ratelimitd\\Limit($strict, endpoint: 'all'), new Ratelimitd\\Limit('web')];
"""
    assert run(always + SYMFONY + """
use Ratelimitd\\Symfony\\RateLimit;
use Symfony\\Component\\HttpFoundation\\Response;
final class Shut { #[RateLimit(limit: 0, window: '1m')] public function __invoke() { return new Response('open'); } }
route('shut', '/shut', new Shut());
ask('GET', '/shut');
echo $limiter->client->peek($strict, 'shop|all|192.0.2.7')->remaining, ' ', $limiter->client->peek('web', '192.0.2.7')->remaining;
""", daemon.socket, EXTENSIONS) == "429 9 100"
