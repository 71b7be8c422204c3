"""test_client.py: what the client adds to the contract that the conformance suite tests."""

import contextlib
import socket
import threading
import time

from scripts import run

CLAMP = """
require 'src/autoload.php';
$client = new Ratelimitd\\Client(timeout: 5.0);
[$decision, $reservation] = $client->reserve('web', 'k', 5000, clamp: true);
$reservation->settle(30);
[$denied, $none] = $client->reserve('web', 'k', 5000, clamp: true);
[$small] = $client->reserve('web', 'k', 60, clamp: true);
$work = $client->withReservation('web', 'other', 5000, fn ($reservation) => $reservation->settle(1) ? 'done' : '', clamp: true);
echo json_encode([$decision->granted, $denied->allowed, $none, $small->granted, $work]);
"""


def test_an_estimate_that_never_fits_is_clamped_to_the_capacity(daemon):
    assert run(CLAMP, daemon.socket) == '[100,false,null,60,"done"]'


class Trickling:
    """A daemon whose answer never ends: a byte at a time, for as long as somebody reads."""

    def __init__(self, path):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(1)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        one, _ = self.listener.accept()
        with one, contextlib.suppress(OSError):
            one.recv(65536)
            one.sendall(b"\x94\x01\x01\xc0\xdb\x00\x30\x00\x00")  # a text of 3 MiB begins
            while True:
                one.sendall(b"x")
                time.sleep(0.001)


def test_the_timeout_holds_while_bytes_keep_coming(tmp_path):
    Trickling(tmp_path / "socket")
    assert run("""
require 'src/autoload.php';
try { (new Ratelimitd\\Client(timeout: 0.2))->check('web', 'k'); } catch (Ratelimitd\\Unavailable $failure) { echo $failure->kind; }
""", str(tmp_path / "socket")) == "timeout"


def test_a_signal_does_not_end_a_call(daemon):
    assert run("""
require 'src/autoload.php';
pcntl_async_signals(true);
pcntl_signal(SIGUSR1, fn () => null);
$pid = getmypid();
$stopper = proc_open(['sh', '-c', "for i in 1 2 3 4 5; do kill -USR1 $pid; sleep 0.02; done; kill -CONT $pid"], [], $pipes);
$client = new Ratelimitd\\Client(timeout: 10);
for ($i = 0; $i < 2000; $i++) { $client->check('web', "k-$i"); }
proc_close($stopper);
echo json_encode($client->counters()['unavailable']);
""", daemon.socket) == "[]"


def test_a_hook_that_fails_loses_no_slot(daemon):
    assert run("""
require 'src/autoload.php';
$lines = [];
$client = new Ratelimitd\\Client(timeout: 5, onDecision: fn ($policy, $key, $decision) => throw new Exception("$policy $key"),
    log: function ($line) use (&$lines) { $lines[] = $line; });
[$decision, $slot] = $client->acquire('slow', 'k');
echo json_encode([$slot->release(), $client->stats()['slots'], $lines]);
""", daemon.socket) == '[true,0,["onDecision failed: slow k"]]'


def test_the_hook_has_each_member_also_of_remembered_denials(daemon):
    assert run("""
require 'src/autoload.php';
$seen = [];
$client = new Ratelimitd\\Client(timeout: 5, rememberDenials: 60,
    onDecision: function ($policy, $key, $decision) use (&$seen) { $seen[] = "$policy " . json_encode($decision->allowed) . " $decision->source"; });
for ($i = 0; $i < 3; $i++) { $client->checkAll([['web', 'k'], ['tenant', 'k', 2]]); }
echo implode(', ', $seen), ' ', json_encode($client->counters());
""", daemon.socket) == "web true memory, tenant true memory, web true memory, tenant false memory, web true memory, " \
        'tenant false deny_cache {"checks":6,"allowed":4,"denied":2,"remembered":1,"refused":0,"unavailable":[]}'


def test_a_reservation_can_be_settled_by_its_token(daemon):
    assert run("""
require 'src/autoload.php';
[, $reservation] = (new Ratelimitd\\Client(timeout: 5))->reserve('budget', 'k', 8);
echo (new Ratelimitd\\Client(timeout: 5))->settle($reservation->token, 3)->refunded;
""", daemon.socket) == "5"
