"""test_llm_proxy.py: the example proxies of a language model, examples/llm_proxy.py in Python and examples/llmproxy in Go, do
what docs/recipes.md says, "A gateway of language models". The daemon and Redis are real, the model is a server of this file.

    LLM_PROXY=python pytest test_llm_proxy.py       # or go; the languages' `test` scripts do that
"""

import contextlib
import hashlib
import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "integration"))
from harness import Ratelimitd, eventually, on_free_port, one_server  # noqa: E402

LANGUAGE = os.environ.get("LLM_PROXY", "python")
DEPS = Path(os.environ.get("DEPS") or ROOT / ".deps").resolve()
os.environ["PATH"] = f"{DEPS}/bin:{os.environ['PATH']}"  # redis-server
RECIPE = re.search(r"^## A gateway of language models\n.*?^```yaml\n(.*?)^```", (ROOT / "docs" / "recipes.md").read_text(), re.M | re.S)[1]
CONFIG = f"defaults: {{deadline: 10s, on_failure: error}}   # a busy machine is slow\n{RECIPE}"
BEGIN_S = 4_000_000_000 - 4_000_000_000 % 86400
DAY_S, TTL_S = 86400, 600
PATH, KEY = "/v1/chat/completions", "the key of acme"
API_KEYS = {hashlib.sha256(KEY.encode()).hexdigest(): "acme"}
UPSTREAM_KEY = "the key of the proxy"
FULL = [60, 100_000, 1_000_000, 5]
PATIENCE_S = 20


# ---- the model ----


class Model(ThreadingHTTPServer):
    """Answers a question as its last message asks it to, with words that are one token each: `w w total 50`.

    w        an event with one token
    gate     wait until the test opens the gate; before the first word, without an answer
    total N  the event with the usage
    break    the connection ends
    refuse   status 500
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.begin()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def begin(self):
        """For a test."""
        self.gate = threading.Event()
        self.questions = []  # (header fields, body)
        self.n_left = 0  # callers that have gone while an answer waited at the gate

    @property
    def question_tokens(self):
        """The tokens of the last question, as the proxies estimate them."""
        return len(self.questions[-1][1]) // 4


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        with contextlib.suppress(ConnectionError):  # the proxy has gone
            self.answer()

    def answer(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.questions.append((self.headers, body))
        words = json.loads(body)["messages"][-1]["content"].split()
        self.close_connection = True
        if words[:1] == ["refuse"]:
            self.send_error(500)
            return
        if words[:1] == ["gate"] and not self.pass_gate():
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for word, following in zip(words, [*words[1:], ""]):
            if word == "w":
                self.event({"choices": [{"delta": {"content": "w\u2028"}}], "usage": None})
            elif word == "total":
                self.event({"choices": [], "usage": {"total_tokens": int(following)}})
            elif word == "break" or (word == "gate" and not self.pass_gate()):
                return
        self.write("data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def pass_gate(self):
        gate = self.server.gate
        while not gate.wait(0.01):
            if select.select([self.connection], [], [], 0)[0] and not self.connection.recv(1, socket.MSG_PEEK):
                self.server.n_left += 1
                return False
        return True

    def event(self, content):
        self.write(f"data: {json.dumps(content, ensure_ascii=False)}\n\n")

    def write(self, text):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(text.encode()), text.encode()))

    def log_message(self, *_):
        pass


# ---- the proxy ----


@pytest.fixture(scope="session")
def argv(tmp_path_factory):
    if LANGUAGE == "python":
        return [str(DEPS / "clients" / "python" / "venv" / "bin" / "python"), str(ROOT / "clients/python/examples/llm_proxy.py")]
    built = tmp_path_factory.mktemp("go") / "llmproxy"
    subprocess.run(["go", "build", "-o", built, "./llmproxy"], cwd=ROOT / "clients" / "go" / "examples", env=go_environment(), check=True)
    return [str(built)]


def go_environment():
    go = DEPS / "clients" / "go"
    return {"GOMODCACHE": str(go / "mod"), "GOCACHE": str(go / "cache"), "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local",
            "GOWORK": "off", **os.environ}


class Proxy:
    def __init__(self, argv, daemon, model, log):
        self.log = log
        env = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        self.env = {**env, "RATELIMIT_SOCKET": daemon.socket, "TIMEOUT_MS": "10000", "API_KEYS": json.dumps(API_KEYS),
                    "UPSTREAM": f"http://127.0.0.1:{model.server_port}", "UPSTREAM_KEY": UPSTREAM_KEY,
                    "PYTHONPATH": str(ROOT / "clients" / "python" / "src")}
        self.argv = argv
        on_free_port(self.start)

    def start(self, port):
        self.port = port
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.argv, env={**self.env, "PORT": str(port)}, stdin=subprocess.DEVNULL,
                                            stdout=subprocess.PIPE, stderr=log)
        said = self.process.stdout.readline()
        assert said == b"ready\n", self.log.read_text(errors="replace")

    def ask(self, words="", method="POST", path=PATH, fields=(), **more):
        """The answer, as far as its header."""
        body = json.dumps({"messages": [{"role": "user", "content": words}], "max_tokens": 10, **more})
        return self.send(method, path, {"Authorization": f"Bearer {KEY}", **dict(fields)}, body)

    def send(self, method, path, fields, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request(method, path, body, {"Connection": "close", **fields})
        answer = connection.getresponse()
        answer.hang_up = lambda: (connection.sock or answer.fp.raw._sock).shutdown(socket.SHUT_RDWR)
        return answer

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()

    def close(self):
        if self.process.poll() is None:
            self.kill()


class Clock:
    """The time of the daemon's limits. Each test begins with a day."""

    def __init__(self, daemon):
        self.daemon, self.now_s = daemon, BEGIN_S - DAY_S
        self.begin_a_day()

    def begin_a_day(self):
        self.advance(DAY_S - self.now_s % DAY_S)

    def advance(self, seconds):
        self.now_s += seconds
        with self.daemon.client() as client:
            client.call("test_clock", self.now_s * 1_000_000)


@pytest.fixture(scope="module")
def shared_model():
    with Model() as one:
        yield one
        one.shutdown()


@pytest.fixture
def model(shared_model):
    shared_model.begin()
    yield shared_model
    shared_model.gate.set()


@pytest.fixture(scope="module")
def start(argv, shared_model, tmp_path_factory):
    """start(daemon): a proxy that asks it."""
    started = []

    def start(daemon):
        started.append(Proxy(argv, daemon, shared_model, tmp_path_factory.mktemp("proxy") / "log"))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture(scope="module")
def pair(start):
    """A daemon, its clock, and a proxy: of all tests that end neither."""
    one = Ratelimitd(CONFIG, arguments=["--test-clock"])
    clock = Clock(one)
    proxy = start(one)
    yield one, clock, proxy
    proxy.close()
    one.close()


@pytest.fixture
def daemon(pair, clock):
    return pair[0]


@pytest.fixture
def clock(pair):
    daemon, clock, _ = pair
    clock.begin_a_day()
    with daemon.client() as client:
        client.call("reset", "llm", "acme")
    return clock


@pytest.fixture
def proxy(pair, clock, model):
    return pair[2]


@pytest.fixture
def redis():
    yield from one_server("redis")


@pytest.fixture
def own():
    """own(config): a daemon that the test may end."""
    started = []

    def own(config=CONFIG, **options):
        started.append(Ratelimitd(config, **options))
        return started[-1]

    yield own
    for one in started:
        one.close()


def left(daemon):
    """What each limit of acme has left, by itself."""
    with daemon.client() as client:
        return [limit["remaining"] for limit in client.call("explain", "llm", "acme", 0)["limits"]]


def come_to(daemon, expected):
    eventually(lambda: left(daemon) == expected, lambda: f"{expected} is left, not {left(daemon)}", PATIENCE_S)


def used(tokens, requests=1, slots=0):
    """What is left then."""
    return [60 - requests, 100_000 - tokens, 1_000_000 - tokens, 5 - slots]


def words_of(answer, n):
    """So many events with a word, as they come."""
    events = []
    while len(events) < n:
        line = answer.readline()
        assert line, events
        if line.startswith(b"data: {"):
            events.append(json.loads(line.removeprefix(b"data: "))["choices"][0]["delta"]["content"])
    return events


def end_of(answer):
    return answer.read().decode().split("\n\n")[-2:]


def denied(answer):
    """The limit, and Retry-After."""
    assert answer.status == 429, answer.read()
    assert answer.headers["RateLimit"] and answer.headers["Content-Type"] == "application/problem+json"
    return json.loads(answer.read())["violated-policies"], answer.headers["Retry-After"]


# ---- an answer ----


def test_an_answer_comes_part_by_part_and_costs_what_the_model_reports(proxy, daemon, model):
    answer = proxy.ask("w w gate w total 300")
    assert (answer.status, answer.headers["Content-Type"].split(";")[0]) == (200, "text/event-stream")
    assert answer.headers["RateLimit"].startswith('"llm/minute";r=')
    assert words_of(answer, 2) == ["w\u2028"] * 2
    assert left(daemon) == used(model.question_tokens + 10, slots=1)
    model.gate.set()
    assert words_of(answer, 1) and end_of(answer) == ["data: [DONE]", ""]
    come_to(daemon, used(300))


def test_a_client_that_breaks_off_pays_for_what_it_got(proxy, daemon, model):
    answer = proxy.ask("w w w gate total 300")
    words_of(answer, 3)
    answer.hang_up()
    come_to(daemon, used(model.question_tokens + 3))
    eventually(lambda: model.n_left == 1, "the model need not go on", PATIENCE_S)


def test_a_client_that_leaves_before_the_answer_begins_holds_no_slot(proxy, daemon, model):
    with socket.create_connection(("127.0.0.1", proxy.port)) as raw:
        body = json.dumps({"messages": [{"role": "user", "content": "gate w"}]})
        raw.sendall(f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        eventually(lambda: model.questions, "the model is asked", PATIENCE_S)
    model.gate.set()
    eventually(lambda: left(daemon) in [used(0), *(used(model.question_tokens + n) for n in range(2))], "the slot is free", PATIENCE_S)


def test_of_a_killed_proxy_the_slot_is_free_at_once_and_the_tokens_when_their_time_is_over(start, daemon, clock, model):
    proxy = start(daemon)
    words_of(proxy.ask("w gate"), 1)
    reserved = model.question_tokens + 10
    assert left(daemon) == used(reserved, slots=1)
    proxy.kill()
    come_to(daemon, used(reserved))
    clock.advance(TTL_S)
    come_to(daemon, FULL)


def test_an_answer_longer_than_its_estimate_is_paid_and_the_next_one_waits(proxy, daemon, clock):
    proxy.ask("w total 150000").read()
    come_to(daemon, [59, 0, 850_000, 5])
    assert denied(proxy.ask("w total 20")) == (["llm/minute"], "31")
    assert left(daemon) == [59, 0, 850_000, 5]
    clock.advance(31)
    answer = proxy.ask("w total 20")
    assert answer.status == 200 and answer.read()


def test_two_replicas_on_two_hosts_have_five_slots_together(start, own, redis, model):
    daemons = [own(redis=redis) for _ in range(2)]
    proxies = [start(daemon) for daemon in daemons]
    with ThreadPoolExecutor(10) as threads:
        answers = list(threads.map(lambda n: proxies[n % 2].ask("w gate total 20"), range(10)))
    assert Counter(answer.status for answer in answers) == {200: 5, 429: 5}
    assert all(denied(answer) == (["llm/at-once"], None) for answer in answers if answer.status == 429)
    assert [left(daemon)[3] for daemon in daemons] == [0, 0]
    model.gate.set()
    for answer in answers:
        answer.read()
    for daemon in daemons:
        eventually(lambda daemon=daemon: left(daemon)[2:] == [1_000_000 - 5 * 20, 5], "five answers are paid", PATIENCE_S)


# ---- a denial: test_an_answer_longer_... has that by the minute's tokens ----


def test_the_requests_of_a_minute_deny(proxy, daemon, clock):
    for _ in range(60):
        proxy.ask("w total 20").read()
    come_to(daemon, used(60 * 20, requests=60))
    assert denied(proxy.ask("w")) == (["llm/requests"], "61")
    clock.advance(61)
    assert proxy.ask("w").read()


def test_the_tokens_of_a_day_deny(proxy, daemon, clock):
    for n in range(1, 11):
        proxy.ask("w total 100000").read()
        come_to(daemon, [59, 0, 1_000_000 - n * 100_000, 5])
        clock.advance(120)
    assert denied(proxy.ask("w")) == (["llm/day"], str(DAY_S - 10 * 120))
    clock.advance(DAY_S - 10 * 120)
    assert proxy.ask("w").read()


def test_the_sixth_answer_at_once_is_denied_and_holds_nothing(proxy, daemon, model):
    answers = [proxy.ask("w gate total 20") for _ in range(5)]
    assert denied(proxy.ask("w")) == (["llm/at-once"], None)  # none: its holder is done when it is done
    assert left(daemon) == used(5 * (model.question_tokens + 10), requests=5, slots=5)
    model.gate.set()
    for answer in answers:
        answer.read()
    come_to(daemon, used(5 * 20, requests=5))


def test_a_question_that_never_fits_is_denied_for_good(proxy, daemon, model):
    assert denied(proxy.ask("w " * 250_000)) == (["llm/minute"], None)
    assert left(daemon) == FULL and not model.questions


# ---- what fails ----


def test_a_model_that_refuses_costs_a_request_and_no_tokens(proxy, daemon):
    assert proxy.ask("refuse").status == 502
    come_to(daemon, used(0))


def test_a_model_that_breaks_off_is_no_complete_answer_and_is_paid_so_far(proxy, daemon, model):
    answer = proxy.ask("w w break")
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        answer.read()
    come_to(daemon, used(model.question_tokens + 2))


def test_without_the_daemon_nothing_goes_out(start, own, model):
    daemon = own()
    proxy = start(daemon)
    daemon.stop()
    answer = proxy.ask("w")
    assert (answer.status, answer.headers["Retry-After"], model.questions) == (503, "1", [])


def test_a_daemon_that_does_not_know_the_policy_is_a_mistake(start, own, model):
    proxy = start(own("policies: {other: {algorithm: fixed_window, limit: 1, window: 1m}}"))
    assert proxy.ask("w").status == 500 and not model.questions


def test_a_daemon_that_begins_anew_is_asked_again_and_the_answer_goes_on(start, own, model):
    daemon = own()
    proxy = start(daemon)
    answer = proxy.ask("w gate w total 300")
    words_of(answer, 1)
    daemon.stop()
    daemon.start()
    model.gate.set()
    assert end_of(answer) == ["data: [DONE]", ""]
    eventually(lambda: proxy.ask("w total 20").status == 200, "it answers again", PATIENCE_S)


# ---- attacks ----

MESSAGES = [{"role": "user", "content": "w"}]
KNOWN = {"Authorization": f"Bearer {KEY}"}
FORGED = {"X-Tenant": "acme", "X-User": "acme", "X-Forwarded-User": "acme", "X-Customer": "acme", "Cookie": "customer=acme"}


def question(**more):
    return json.dumps({"messages": MESSAGES, **more})


ATTACKS = [
    # no key, or one that is forged
    *[("POST", PATH, fields, question(), {401}) for fields in (
        {}, FORGED, {"Authorization": ""}, {"Authorization": "Bearer "}, {"Authorization": "Bearer acme"},
        {"Authorization": f"Bearer {KEY} x"}, {"Authorization": f"Basic {KEY}"}, {"Authorization": f"Bearer {next(iter(API_KEYS))}"},
        {"Authorization": b"Bearer \xff\xfe"}, {"Authorization": "Bearer " + "x" * 5000})],
    # a question that is none
    *[("POST", PATH, KNOWN, body, {400}) for body in (
        "", "{", "[]", "null", "5", '"messages"', "{}", '{"messages": null}', '{"messages": "w"}', '{"messages": {}}', b"\xff\xfe{",
        "[" * 100_000, '{"messages": ' + "[" * 100_000, '{"messages": [NaN]}', '{"messages": []} {}')],
    # tokens that are none, or too many
    *[("POST", PATH, KNOWN, f'{{"messages": {json.dumps(MESSAGES)}, "max_tokens": {number}}}', {400}) for number in (
        "-1", "0", "4097", "9223372036854775808", "1e400", "NaN", "1.5", '"100"', "[1]", "{}", "true", "9" * 5000)],
    ("POST", PATH, KNOWN, question(padding="x" * (1 << 20)), {413}),
    ("POST", PATH, KNOWN, iter([b"x" * 65536] * 17), {413}),  # without a Content-Length
    # other methods and paths
    *[(method, PATH, KNOWN, question(), {405}) for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "post")],
    ("GET", PATH, {**KNOWN, "X-HTTP-Method-Override": "POST", "X-Method-Override": "POST"}, question(), {405}),
    *[("POST", path, KNOWN, question(), {301, 307, 308, 404}) for path in (
        "/", "/v1", f"{PATH}/", f"/{PATH}", f"/x/..{PATH}", f"{PATH};a", f"{PATH}%00", "/v1/chat%2fcompletions/x", PATH.upper())],
]


def test_an_attack_is_refused_and_costs_nothing(proxy, daemon, model):
    for method, path, fields, body, statuses in ATTACKS:
        try:
            status = proxy.send(method, path, fields, body).status
        except (BrokenPipeError, ConnectionResetError):  # a server that has answered reads no more of a question that is too large
            status = 413
        assert status in statuses, (method, path, fields, str(body)[:200])
    assert left(daemon) == FULL and not model.questions
    assert proxy.ask("w total 20").read() and left_at_last(daemon) == used(20)


def left_at_last(daemon):
    eventually(lambda: left(daemon)[3] == 5, "the slot is free", PATIENCE_S)
    return left(daemon)


def test_a_question_that_does_not_end_holds_nothing(proxy, daemon, model):
    with socket.create_connection(("127.0.0.1", proxy.port)) as raw:
        raw.sendall(f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Length: 500\r\n\r\n{{".encode())
        assert proxy.ask("w total 20").read()
        assert left_at_last(daemon) == used(20)
    assert proxy.ask("w total 20").read()
    assert left_at_last(daemon) == used(40, requests=2) and len(model.questions) == 2


def test_a_customer_is_who_has_the_key_whatever_else_is_written(proxy, daemon):
    assert proxy.ask("w total 20", fields={**FORGED, "X-Tenant": "other"}, user="other", customer="other").read()
    assert left_at_last(daemon) == used(20)


def test_the_model_gets_known_fields_alone_and_the_key_of_the_proxy(proxy, model):
    proxy.ask("w total 20", n=128, max_completion_tokens=10**9, best_of=20, stream=False, model="expensive", tools=[]).read()
    [(fields, body)] = model.questions
    assert json.loads(body) == {"model": "small", "messages": [{"role": "user", "content": "w total 20"}], "max_tokens": 10,
                                "stream": True, "stream_options": {"include_usage": True}}
    assert fields.get_all("Authorization") == [f"Bearer {UPSTREAM_KEY}"] and KEY not in str(fields)


def test_text_of_any_kind_reaches_the_model(proxy, model):
    text = "w total 20 \u2028\x00\U0001f600 </script>"
    assert proxy.ask(text).status == 200
    assert json.loads(model.questions[-1][1])["messages"][0]["content"] == text
    lone = proxy.send("POST", PATH, KNOWN, '{"messages": [{"content": "w \\ud800"}]}')
    assert lone.status in (200, 400)
