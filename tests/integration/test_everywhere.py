"""test_everywhere.py: every feature through the socket, ratelimitctl and libratelimit, on both stores. Each cell of the table
uses one feature and checks that it works. Other tests cover each feature in full; these tests only check that no way of
asking and no store lacks it."""

import contextlib
import datetime
import json
import shutil
import subprocess
import time

import msgpack
import pytest

from harness import PATIENCE_S, ROOT, Ratelimitd, Redis, build_dir, eventually, program, sanitized, short_directory

DAY_MS = 86400000
WINDOW_MS = 4000 * DAY_MS  # nothing comes back while the tests run
CONFIG = """inline: {allow: true}
defaults: {deadline: 9s, on_failure: error}
policies:
  ten: {algorithm: fixed_window, start: first_hit, limit: 10, window: 4000d}
  two: {algorithm: fixed_window, start: first_hit, limit: 2, window: 4000d}
  late: {algorithm: fixed_window, limit: 10, window: 4000d, on_failure: allow}
  several:
    limits:
      - {name: wide, algorithm: fixed_window, start: first_hit, limit: 10, window: 4000d}
      - {name: narrow, algorithm: sliding_log, limit: 2, window: 4000d}
  tenants:
    key_format: "{tenant}:{user}"
    limits:
      - {name: user, algorithm: token_bucket, limit: 4, window: 4000d}
      - {name: tenant, by: [tenant], algorithm: sliding_counter, limit: 6, window: 4000d}
  changed:
    algorithm: fixed_window
    start: first_hit
    limit: 2
    window: 4000d
    overrides: [{match: "vip-*", limit: 50}, {match: "free-*", unlimited: true}]
  free: {unlimited: true}
  tried: {algorithm: fixed_window, start: first_hit, limit: 1, window: 4000d, shadow: true}
  trial:
    algorithm: fixed_window
    start: first_hit
    limit: 10
    window: 4000d
    candidate: [{name: half, algorithm: fixed_window, start: first_hit, limit: 5, window: 4000d}]
  jobs: {algorithm: concurrency, limit: 2, slot_ttl: 30s}
  token_bucket: {algorithm: token_bucket, limit: 4, window: 4000d, burst: 2}
  gcra: {algorithm: gcra, limit: 4, window: 4000d, burst: 2}
  fixed_window: {algorithm: fixed_window, limit: 2, window: 4000d}
  first_hit: {algorithm: fixed_window, start: first_hit, limit: 2, window: 4000d}
  sliding_log: {algorithm: sliding_log, limit: 2, window: 4000d}
  sliding_counter: {algorithm: sliding_counter, limit: 2, window: 4000d}
  leaky_bucket: {algorithm: leaky_bucket, limit: 4, window: 4000d, burst: 1, max_wait: 1500d}
  calendar_window: {algorithm: calendar_window, limit: 2, window: year}
  phased: {algorithm: fixed_window, limit: 2, window: 4000d, phase: true}
"""
INLINE = {"algorithm": "fixed_window", "start": "first_hit", "limit": 7, "window": "4000d"}


# ---- the ways of asking -------------------------------------------------------------------------------------------


class Socket:
    """Any client of the protocol: a policy may be a map, options are one."""

    def __init__(self, daemon):
        self.client = daemon.client()

    def ask(self, method, *params, **options):
        if method == "check" and options:
            policy, key, *cost = params
            options = {**options, **({"cost": cost[0]} if cost else {})}
            params = [policy, key]
        return self.client.call(method, *params, *([options] if options else []))

    @contextlib.contextmanager
    def slot(self, policy, key):
        answer = self.ask("acquire", policy, key)
        yield answer
        if answer["allowed"]:
            assert self.ask("release", answer["slot"]) == {"released": True}

    def close(self):
        self.client.close()


def spelled(policy):
    """In the form that a person writes."""
    return policy if isinstance(policy, str) else json.dumps(policy)


class Ctl:
    """ratelimitctl, and what it prints with --json."""

    FLAGS = {"deadline_ms": "--deadline", "max_wait_ms": "--max-wait", "at_most": "--at-most", "request_id": "--request-id",
             "ttl_ms": "--ttl"}

    def __init__(self, daemon):
        self.argv = [program("ratelimitctl"), "-s", daemon.socket, "--timeout", "9s", "--json"]

    def argv_of(self, method, params, options):
        argv = list(self.argv)
        for name, value in options.items():
            argv += [self.FLAGS[name], f"{value}ms" if name.endswith("_ms") else str(value)]
        argv.append(method.replace("_", "-"))
        if method in ("check_all", "check_many"):
            for i, (policy, *rest) in enumerate(params[0]):
                argv += [*([","] if i > 0 else []), spelled(policy), *map(str, rest)]
        elif params:
            argv += [spelled(params[0]), *map(str, params[1:])]
        return argv

    def ask(self, method, *params, **options):
        done = subprocess.run(self.argv_of(method, params, options), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=PATIENCE_S)
        answer = json.loads(done.stdout)
        answer = answer.get(method, answer)
        decisions = answer if isinstance(answer, list) else [answer]
        is_verdict = method in ("check", "check_all", "check_many", "peek", "explain", "reserve")
        denied = is_verdict and not all(decision["allowed"] for decision in decisions)
        assert (done.returncode, done.stderr) == (int(denied), "")
        return answer

    @contextlib.contextmanager
    def slot(self, policy, key):
        process = subprocess.Popen(self.argv_of("acquire", [policy, key], {}), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   text=True)
        answer = json.loads(process.stdout.readline())
        yield answer
        process.communicate("", timeout=PATIENCE_S)
        assert process.returncode == int(not answer["allowed"])

    def close(self):
        pass


class Library:
    """A C program that uses libratelimit for the given request (client_programs/ask.c)."""

    def __init__(self, daemon, binary):
        self.process = subprocess.Popen([binary, daemon.socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, method, *params, **options):
        words = [method]
        if method in ("check_all", "check_many"):
            for policy, key, *cost in params[0]:
                words += [spelled(policy), key, *(cost or [1])]
        elif params:
            words += [spelled(params[0]), *params[1:]]
        if options:
            words += ["", *(f"{name}={value}" for name, value in options.items())]
        self.process.stdin.write("\t".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert "status" not in answer, answer
        if "packed" in answer:
            return msgpack.unpackb(bytes.fromhex(answer["packed"]))
        if "id" in answer:
            answer["reservation"] = answer["slot"] = answer["id"]
        return answer

    @contextlib.contextmanager
    def slot(self, policy, key):
        answer = self.ask("acquire", policy, key)
        yield answer
        if answer["allowed"]:
            assert self.ask("release", answer["id"]) == {"released": True}

    def close(self):
        self.process.communicate("", timeout=PATIENCE_S)
        assert self.process.returncode == 0


# ---- requests -----------------------------------------------------------------------------------------------------


def some(answer, *names):
    """A field with its default may be absent."""
    defaults = {"delay_ms": 0, "granted": None, "bound_by": "", "shadow_denied": False, "ended": False}
    return tuple(answer.get(name) or defaults.get(name, answer.get(name)) for name in names)


def cost(way, key):
    assert some(way.ask("check", "ten", key), "allowed", "remaining") == (True, 9)
    assert some(way.ask("check", "ten", key, 6), "allowed", "remaining") == (True, 3)
    assert some(way.ask("check", "ten", key, 4), "allowed", "remaining") == (False, 3)


def peek(way, key):
    way.ask("check", "ten", key, 4)
    assert some(way.ask("peek", "ten", key), "allowed", "remaining") == (True, 6)
    assert some(way.ask("peek", "ten", key, 7), "allowed", "remaining") == (False, 6)
    assert way.ask("peek", "ten", key)["remaining"] == 6


def reset(way, key):
    way.ask("check", "ten", key, 4)
    assert way.ask("reset", "ten", key) == {"removed": True}
    assert way.ask("reset", "ten", key) == {"removed": False}
    assert way.ask("peek", "ten", key)["remaining"] == 10


def refund(way, key):
    way.ask("check", "ten", key, 6)
    assert some(way.ask("refund", "ten", key, 2), "refunded", "remaining") == (2, 6)


def at_most(way, key):
    assert some(way.ask("check", "ten", key, at_most=8), "allowed", "granted") == (True, 8)
    assert some(way.ask("check", "ten", key, at_most=8), "allowed", "granted") == (True, 2)
    assert way.ask("check", "ten", key, at_most=8)["allowed"] is False


def deadline_ms(way, key, redis):
    """With a stopped store, the policy's failure answer comes by then; otherwise, the store's answer."""
    assert way.ask("check", "late", key, deadline_ms=9000)["remaining"] == 9
    if redis is None:
        return
    redis.pause()
    answer = way.ask("check", "late", key, 2, deadline_ms=20)
    redis.resume()
    assert some(answer, "allowed", "source", "reason") == (True, "allow", "deadline")


def inline(way, key):
    assert some(way.ask("check", INLINE, key, 3), "limit", "remaining") == (7, 4)
    assert some(way.ask("peek", INLINE, key, 5), "allowed", "limit") == (False, 7)


def check_all(way, key):
    answer = way.ask("check_all", [["ten", key, 4], ["two", key, 2]])
    assert answer["allowed"] and [member["remaining"] for member in answer["members"]] == [6, 0]
    answer = way.ask("check_all", [["ten", key, 4], ["two", key, 1]])
    assert some(answer, "allowed", "bound_by") == (False, "two")
    assert [member["allowed"] for member in answer["members"]] == [True, False]
    assert way.ask("peek", "ten", key)["remaining"] == 6


def check_all_with_options(way, key):
    for _ in range(2):
        answer = way.ask("check_all", [["ten", key, 4], ["two", key, 2]], request_id=f"id {key}", deadline_ms=9000)
        assert answer["allowed"] and [member["remaining"] for member in answer["members"]] == [6, 0]


def several_limits(way, key):
    assert some(way.ask("check", "several", key, 2), "allowed", "limit", "remaining") == (True, 2, 0)
    assert some(way.ask("check", "several", key), "allowed", "bound_by") == (False, "several/narrow")


def key_format_and_by(way, key):
    assert way.ask("check", "tenants", f"{key}:one", 4)["allowed"]
    assert some(way.ask("check", "tenants", f"{key}:one"), "allowed", "bound_by") == (False, "tenants/user")
    assert some(way.ask("check", "tenants", f"{key}:two", 3), "allowed", "bound_by") == (False, "tenants/tenant")
    assert way.ask("check", "tenants", f"{key}:two", 2)["allowed"]


def check_many(way, key):
    answers = way.ask("check_many", [["ten", key, 4], ["two", key, 3], [INLINE, key], ["ten", key, 1]])
    assert [some(answer, "allowed", "remaining") for answer in answers] == [(True, 6), (False, 2), (True, 6), (True, 5)]


def request_id(way, key):
    for _ in range(2):
        assert some(way.ask("check", "ten", key, 4, request_id=f"id {key}"), "allowed", "remaining") == (True, 6)
    assert way.ask("peek", "ten", key)["remaining"] == 6


def settle(way, key):
    reserved = way.ask("reserve", "ten", key, 8, ttl_ms=600000)
    assert some(reserved, "allowed", "remaining") == (True, 2)
    assert some(way.ask("settle", reserved["reservation"], 5), "refunded", "remaining", "ended") == (3, 5, False)
    assert some(way.ask("settle", reserved["reservation"], 5), "remaining", "ended") == (5, True)
    more = way.ask("reserve", "ten", key, 1)
    assert some(way.ask("settle", more["reservation"], 3), "charged", "remaining") == (2, 2)


def cancel(way, key):
    reserved = way.ask("reserve", "ten", key, 8)
    assert some(way.ask("cancel", reserved["reservation"]), "refunded", "remaining") == (8, 10)
    assert way.ask("reserve", "ten", key, 11)["allowed"] is False


def overrides(way, key):
    assert way.ask("check", "changed", f"vip-{key}")["limit"] == 50
    assert way.ask("check", "changed", key)["limit"] == 2
    listed = next(policy for policy in way.ask("policies") if policy["name"] == "changed")
    assert (listed["overrides"], listed["override_list"][0]) == (2, {"match": "vip-*", "limits": [{"limit": 50}]})


def unlimited(way, key):
    for policy, of in (("free", key), ("changed", f"free-{key}")):
        assert some(way.ask("check", policy, of, 10**9), "allowed", "limit", "source") == (True, 2**53 - 1, "unlimited")


def shadow(way, key):
    assert some(way.ask("check", "tried", key), "allowed", "shadow_denied") == (True, False)
    assert some(way.ask("check", "tried", key), "allowed", "shadow_denied") == (True, True)


def candidate(way, key):
    def denied():
        policy = next(policy for policy in way.ask("policies") if policy["name"] == "trial")
        return policy["candidate_only_denied"]

    before = denied()
    assert some(way.ask("check", "trial", key, 6), "allowed", "remaining") == (True, 4)
    eventually(lambda: denied() == before + 1, "the candidate's verdict is counted")


def explain(way, key):
    way.ask("check", "several", key, 2)
    answer = way.ask("explain", "several", key)
    assert some(answer, "allowed", "policy", "bound_by") == (False, "several", "several/narrow")
    assert answer["why"].startswith('Denied by limit "narrow" (sliding_log, 2 per 4000d)')
    assert [state["count"] for state in answer["state"]] == [2, 2]
    way.ask("check", "trial", key, 5)
    answer = way.ask("explain", "trial", key)
    assert answer["allowed"] and some(answer["candidate"], "allowed", "bound_by", "remaining") == (False, "", 0)


def slots(way, key):
    with way.slot("jobs", key) as first:
        assert first["allowed"] and first["remaining"] == 1 and first["slot"]
        with way.slot("jobs", key) as second:
            assert second["allowed"] and second["remaining"] == 0
            with way.slot("jobs", key) as third:
                assert third["allowed"] is False
    eventually(lambda: way.ask("peek", "jobs", key)["remaining"] == 2, "they were given back")


# The algorithms: two units and no third, and the time until the next one.


def now_ms():
    return time.time() * 1000


def until_aligned_ms():
    return WINDOW_MS - now_ms() % WINDOW_MS


def until_new_year_ms():
    today = datetime.datetime.now(datetime.timezone.utc)
    return (datetime.datetime(today.year + 1, 1, 1, tzinfo=datetime.timezone.utc) - today).total_seconds() * 1000


def about(ms):
    return pytest.approx(ms, abs=60000)


def two_units(way, policy, key):
    """The denial of a third."""
    assert some(way.ask("check", policy, key), "allowed", "remaining") == (True, 1)
    assert some(way.ask("check", policy, key), "allowed", "remaining") == (True, 0)
    answer = way.ask("check", policy, key)
    assert some(answer, "allowed", "remaining") == (False, 0)
    return answer


def token_bucket(way, key):
    assert two_units(way, "token_bucket", key)["retry_after_ms"] == about(WINDOW_MS / 4)


def gcra(way, key):
    assert two_units(way, "gcra", key)["retry_after_ms"] == about(WINDOW_MS / 4)


def fixed_window(way, key):
    assert two_units(way, "fixed_window", key)["retry_after_ms"] == about(until_aligned_ms())


def first_hit(way, key):
    assert two_units(way, "first_hit", key)["retry_after_ms"] == about(WINDOW_MS)


def sliding_log(way, key):
    assert two_units(way, "sliding_log", key)["retry_after_ms"] == about(WINDOW_MS)
    assert way.ask("explain", "sliding_log", key)["state"][0]["newest_expires_in_ms"] == about(WINDOW_MS)


def sliding_counter(way, key):
    # Half of this window's two units count no more when half of the next one is over.
    assert two_units(way, "sliding_counter", key)["retry_after_ms"] == about(until_aligned_ms() + WINDOW_MS / 2)


def leaky_bucket(way, key):
    assert some(way.ask("check", "leaky_bucket", key), "allowed", "delay_ms") == (True, 0)
    waits = way.ask("check", "leaky_bucket", key)
    assert waits["allowed"] and waits["delay_ms"] == about(WINDOW_MS / 4)
    assert way.ask("check", "leaky_bucket", key)["allowed"] is False


def max_wait_ms(way, key):
    way.ask("check", "leaky_bucket", key)
    assert way.ask("check", "leaky_bucket", key, max_wait_ms=0)["allowed"] is False
    assert way.ask("check", "leaky_bucket", key, max_wait_ms=WINDOW_MS)["delay_ms"] == about(WINDOW_MS / 4)


def calendar_window(way, key):
    assert two_units(way, "calendar_window", key)["retry_after_ms"] == about(until_new_year_ms())


def phase(way, key):
    retry_ms = two_units(way, "phased", key)["retry_after_ms"]
    assert 0 < retry_ms <= WINDOW_MS and abs(retry_ms - until_aligned_ms()) > 60000


ROWS = [cost, peek, reset, refund, at_most, deadline_ms, inline, check_all, check_all_with_options, several_limits,
        key_format_and_by, check_many, request_id, settle, cancel, overrides, unlimited, shadow, candidate, explain, slots,
        token_bucket, gcra, fixed_window, first_hit, sliding_log, sliding_counter, leaky_bucket, max_wait_ms, calendar_window,
        phase]
WAYS = ("socket", "ratelimitctl", "libratelimit")


# ---- the table ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ask_program():
    directory = short_directory()
    source, binary = ROOT / "tests" / "integration" / "client_programs" / "ask.c", directory / "ask"
    sanitizers = ["-fsanitize=address,undefined"] if sanitized() else []
    subprocess.run(["gcc", "-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror", *sanitizers, "-I", ROOT / "src" / "client", source,
                    build_dir() / "lib" / "libratelimit.a", "-o", binary], check=True)
    yield str(binary)
    shutil.rmtree(directory)


@pytest.fixture(scope="module", params=["memory", "redis"])
def served(request, ask_program):
    """A daemon on the store, its server (None for memory), and the ways to ask it; all rows share them."""
    server = Redis() if request.param == "redis" else None
    daemon = Ratelimitd(CONFIG, redis=server)
    ways = dict(zip(WAYS, (Socket(daemon), Ctl(daemon), Library(daemon, ask_program))))
    eventually(lambda: ways["socket"].ask("check", "late", "probe", 0)["source"] == request.param, "the store is there")
    yield server, ways
    for way in ways.values():
        way.close()
    daemon.close()
    if server is not None:
        server.close()


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)
def test_everything_is_everywhere(served, row, name):
    server, ways = served
    key = f"{name}-{row.__name__}"
    if row is deadline_ms:
        row(ways[name], key, server)
    else:
        row(ways[name], key)
