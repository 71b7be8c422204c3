"""test_upgrade.py: an upgrade in place keeps every counter. With the data of an older release in Redis and the tokens of its
clients, a build gives the same answers as that release, and writes the same bytes. The tests compare it with vectors that
were taken from that release: upgrade_vectors.py.
"""

import dataclasses
import re
import struct

import pytest
from harness import Redis, eventually, one_server, shard, stored_keys
from upgrade_vectors import (AWAY, FOLDER, ClockedDaemon, Given, Key, Replay, dump, load, look_up, restore, run_case,
                             run_script_case)

DAEMON, SCRIPT = load(FOLDER / "daemon.txt"), load(FOLDER / "script.txt")
LIVES_BY_REDIS = ("old-first", "old-window")  # presets whose window is the lifetime of the key, by Redis' own clock
SLACK_MS, SLACK_S = 60_000, 60  # longer than any test


@pytest.fixture(scope="module", params=Redis.KINDS)
def server(request):
    yield from one_server(request.param)


@pytest.fixture(scope="module")
def clocked(server):
    """One daemon for many cases."""
    with ClockedDaemon(server) as clocked:
        yield clocked


# ---- answers ----


def comes_near(want, got):
    """Of the rest of a key's lifetime by Redis' own clock."""
    return isinstance(got, int) and abs(want - got) < SLACK_MS


def differences(want, got, real_time=False, where=""):
    """The differences between two answers. New fields and `why` (text for people) do not count."""
    if isinstance(want, dict) and isinstance(got, dict):
        for name in want:
            if name not in got:
                yield f"{where}.{name} is missing"
            elif name != "why":
                timed = real_time and name.endswith("_ms") and name not in ("window_ms", "deadline_ms")
                if not (timed and isinstance(want[name], int) and comes_near(want[name], got[name])):
                    yield from differences(want[name], got[name], real_time, f"{where}.{name}")
    elif isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        for i, (a, b) in enumerate(zip(want, got)):
            yield from differences(a, b, real_time, f"{where}[{i}]")
    elif want != got:
        yield f"{where}: {got!r}, not {want!r}"


def is_decision(answer):
    return isinstance(answer, dict) and "policy_version" in answer and "limits" not in answer


def more(want, got):
    """The new fields of a decision. Clients may get new fields only where PROTOCOL.md adds them."""
    return sorted(set(got) - set(want)) if is_decision(want) and is_decision(got) else []


def compare_answers(step, want, got):
    method, parameters = step.asked
    if method == "stats":  # counts are compared case by case
        want, got = dict.fromkeys(want, 0), {name: 0 for name in got}
    real_time = bool(parameters) and parameters[0] in LIVES_BY_REDIS
    found = [*differences(want, got, real_time), *(f"also has {name}" for name in more(want, got))]
    assert not found, f"{method} {parameters} at {step.at_us}: {'; '.join(found)}"


# ---- keys ----

COUNT_BITS = 36  # of a fixed window's value


def kind_of(name):
    """`fw1` of prefix:{bNNN}:fw1:..., and empty for the keys of compat presets."""
    parts = name.split(b":")
    return parts[2] if parts[1][:1] == b"{" else b""


def what_counts(keys, now_us, window_us):
    """The keys without optional parts that have no meaning: the expired times of a log, and a fixed window with a count of 0."""
    counting = {}
    for name, key in keys.items():
        if kind_of(name) == b"sl1":
            left = tuple(time for time in key.value if int(time) + window_us(name) > now_us)
            key = Key(key.type, key.expires, left)
        is_empty_window = kind_of(name) == b"fw1" and int(key.value) % 2**COUNT_BITS == 0
        if key.value and not is_empty_window:
            counting[name] = key
    return counting


def is_older_stamp(name, want, got):
    """A bucket's value contains its expiry, in ms. After units were given back, an older sufficient expiry may remain."""
    if kind_of(name) not in (b"tb1", b"lb1"):
        return False
    state, stamp = want.value[:14], int.from_bytes(want.value[14:], "little")
    mine, older = got.value[:14], int.from_bytes(got.value[14:], "little")
    full_at_us = int.from_bytes(state[:7], "little")
    return mine == state and full_at_us < older * 1000 <= stamp * 1000 and got.expires == older


def has_one_time_more(name, want, got):
    """A log that counts denials keeps one time more than the release did, in front: so a refund knows that denied units count. The
    release takes no notice of it, and drops it with the next charge."""
    return kind_of(name) == b"sl1" and got.type == want.type and got.value[1:] == want.value


def same_expiry(want, got):
    """An expiry by Redis' own clock is recorded as its longest duration in seconds."""
    if isinstance(want, str) and isinstance(got, str):
        return abs(int(want) - int(got)) < SLACK_S
    return want == got


def gives_back(step):
    return re.search("refund|settle|cancel|sweep|reserve", str(step.asked)) is not None


def compare_keys(step, want, got, window_us, gave_back):
    """Byte for byte, except for the harmless differences above. gave_back: a step gave units back since both sides had the same
    keys."""
    want, got = (what_counts(keys, step.at_us, window_us) for keys in (want, got))
    assert sorted(got) == sorted(want), f"after {step.asked} at {step.at_us}"
    for name, key in want.items():
        mine = got[name]
        if has_one_time_more(name, key, mine):
            mine = dataclasses.replace(mine, value=key.value)
        if not (gave_back and is_older_stamp(name, key, mine)):
            assert (mine.type, mine.value) == (key.type, key.value), f"{name} after {step.asked} at {step.at_us}"
            assert same_expiry(key.expires, mine.expires), f"{name} after {step.asked} at {step.at_us}: {mine} for {key}"


# ---- a daemon ----


HOUR_US = 3_600_000_000


def log_window(name):
    """The window of the limit that this log belongs to."""
    policy = name.decode().split(":")[3]
    return 100_000_000 if policy in ("log", "counting-log", "held-log") else HOUR_US


def given_by(case):
    given = Given()
    for step in case.steps:
        given.note(step.got)
    return given


# The release's refund frees units of denied checks here; now they stay. From this step on the states differ.
FREES_DENIED = {"sliding_log counting denials": ("refund", ["counting-log", "k", 1])}


@pytest.mark.parametrize("case", DAEMON, ids=lambda case: case.name)
def test_a_daemon_writes_and_answers_what_the_release_does(case, server):
    with ClockedDaemon.of(server, case) as clocked:
        run, given = run_case(clocked, case)
    recorded, gave_back = given_by(case), False
    for want, got in zip(case.steps, run.steps):
        if want.asked == FREES_DENIED.get(case.name):
            assert (want.got["refunded"], got.got["refunded"]) == (1, 0)
            return
        gave_back |= gives_back(want)
        compare_answers(want, recorded.answer(want.got), given.answer(got.got))
        compare_keys(want, recorded.keys(want.keys), given.keys(got.keys), log_window, gave_back)
    assert run.stats == {**run.stats, **case.stats}


NEEDS_ITS_CONNECTION = ("release", "policies", "stats")  # only its owner can release a slot; counts begin with a daemon


@pytest.mark.parametrize("case", DAEMON, ids=lambda case: case.name)
def test_a_daemon_continues_with_the_keys_of_the_release_at_any_step(case, server, clocked):
    if case.name.endswith(AWAY):
        with ClockedDaemon.of(server, case) as other:
            go_on_at_any_step(case, other)
    else:
        go_on_at_any_step(case, clocked)


def go_on_at_any_step(case, clocked):
    recorded, before = given_by(case), {}
    for step in case.steps:
        method, parameters = step.asked
        if method not in NEEDS_ITS_CONNECTION:
            restore(clocked.server, before)
            got = clocked.ask(step.at_us, method, recorded.insert(parameters))
            mine = recorded.instead(step.got, got)
            compare_answers(step, recorded.answer(step.got), mine.answer(got))
            compare_keys(step, recorded.keys(step.keys), mine.keys(clocked.keys()), log_window, gives_back(step))
        before = step.keys


def with_less_to_live(keys):
    """The keys half an hour later."""
    return {name: dataclasses.replace(key, expires="+1801") for name, key in keys.items()}


def test_a_window_start_key_of_the_release_keeps_its_expiry(clocked):
    """The release set the expiry at every check. The original limiter and later releases set it once. Everything else is as in
    the release."""
    case, before = next(case for case in DAEMON if case.name == "compat old-start"), {}
    for step in case.steps:
        method, parameters = step.asked
        restore(clocked.server, with_less_to_live(before))
        compare_answers(step, step.got, clocked.ask(step.at_us, method, parameters))
        kept = with_less_to_live({name: key for name, key in step.keys.items() if name in before})
        compare_keys(step, {**step.keys, **kept}, clocked.keys(), log_window, gave_back=False)
        before = step.keys


# ---- a daemon by Redis' own clock: the same values, decoded by their documented formats ----


def little(data):
    return int.from_bytes(data, "little")


def times_of_values(look, start_ms):
    """(its name, the expected time, the actual time, the window's length if it belongs to a window), for each time in a value;
    all in ms. start_ms: of the first call."""
    hour, day, minute = 3_600_000, 86_400_000, 60_000
    count, end = struct.unpack("<I6s", look("fh1:first:k").value)
    assert count == 1
    yield "the end of a window from its first hit", start_ms + 90_000, little(end), 0
    number = int(look("fw1:fixed:k").value) >> COUNT_BITS
    yield "the number of an aligned window", start_ms // hour % 2**16 * hour, number * hour, hour
    yield "its expiry", (start_ms // hour + 1) * hour + 5000, look("fw1:fixed:k").expires, hour
    yield "the end of a day", (start_ms // day + 1) * day, little(look("cw1:day:k").value[5:]), day
    yield "a sliding counter's window", start_ms // minute * minute, little(look("sc1:counter:k").value[:6]) * minute, minute
    yield "a time in a log", start_ms, int(look("sl1:log:k").value[0]) // 1000, 0
    yield "a log's expiry", start_ms + 100_000, look("sl1:log:k").expires, 0
    bucket = look("tb1:bucket:k")
    yield "when a bucket is full", start_ms + 6000, little(bucket.value[:7]) // 1000, 0
    assert little(bucket.value[14:]) == bucket.expires
    yield "the end of a lease", start_ms + 12 * hour, look("co1:slots:k").value[0][0], 0
    yield "when a request id came first", start_ms, little(look("note1:bucket:1:k:r").value[:7]) // 1000, 0
    hold = look("hold1:owing:k")
    yield "the end of a hold", start_ms + 5000, hold.value[0][0], 0
    yield "when it was charged", start_ms, little(hold.value[0][1][15:]) // 1000, 0
    yield "the expiry of the list of holds", start_ms + 65_000, hold.expires, 0


def test_times_in_values_are_those_of_redis_own_clock(redis, ratelimitd, connect):
    client = connect(ratelimitd((FOLDER / "ratelimitd.yaml").read_text(), redis=redis))
    eventually(lambda: client.call("stats")["redis_up"] == 1, "Redis is there")
    with redis.client() as server:
        seconds, micros = server.time()
        start_ms = seconds * 1000 + micros // 1000
        for policy in ("fixed", "first", "day", "log", "counter"):
            client.check(policy, "k")
        client.check("bucket", "k", {"request_id": "r"})
        client.call("acquire", "slots", "k")
        client.call("reserve", "owing", "k", 2, {"ttl_ms": 5000})
        seconds, micros = server.time()
        took_ms = seconds * 1000 + micros // 1000 - start_ms + 1
        keys = {name.decode().split(":", 2)[2]: look_up(server, name, relative=False) for name in stored_keys(server)}
    for what, begun, found, window in times_of_values(keys.__getitem__, start_ms):
        is_next = window > 0 and found - begun == window
        assert begun <= found <= begun + took_ms or is_next, (what, begun, found, took_ms)


# ---- next to a candidate: the names of keys ----

ALL, TENANT, USER = ("tenant", "user"), ("tenant",), ("user",)
ID = {ALL: "acme:1", TENANT: "acme", USER: "1", (): ""}


@pytest.mark.parametrize("own", [ALL, TENANT, USER, ()], ids=str)
@pytest.mark.parametrize("tried", [ALL, TENANT, USER, ()], ids=str)
def test_only_next_to_a_candidate_of_other_parts_keys_have_other_names_than_in_the_release(own, tried, ratelimitd, redis, connect):
    """The release put policy and candidate into the shard of the parts that all limits of both count by, so that a candidate of
    fewer parts renamed the enforced keys. Those start afresh once, and so do a candidate's keys if the policy's limits count by
    fewer parts than it."""
    client = connect(ratelimitd(f"""
defaults: {{deadline: 5s}}
policies:
  p:
    key_format: "{{tenant}}:{{user}}"
    limits: [{{name: x, by: [{", ".join(own)}], algorithm: fixed_window, limit: 9, window: 1d}}]
    candidate: [{{name: y, by: [{", ".join(tried)}], algorithm: fixed_window, limit: 9, window: 1d}}]
""", redis=redis))
    eventually(lambda: client.call("stats")["redis_up"] == 1, "Redis is there")
    answer = client.call("explain", "p", "acme:1")
    in_release = shard("p", ID[tuple(part for part in own if part in tried)])
    (key,), (candidates_key,) = answer["store_keys"], answer["candidate"]["store_keys"]
    assert key == f"{shard('p', ID[own])}:fw1:p/x:{ID[own]}"
    assert candidates_key == f"{shard('p', ID[tried])}:fw1:p+candidate/y:{ID[tried]}"
    assert key.startswith(in_release) == (set(own) <= set(tried))
    assert candidates_key.startswith(in_release) == (set(tried) <= set(own))


# ---- the script, several ops in one batch ----


def of_today(case, step, rows):
    """Without peeks of a policy with slots at a cost that could not be asked: at the release's wire it was 0 or 1. Now any takes one."""
    if not case.name.startswith("slots"):
        return rows
    return [row for request, row in zip(step.asked, rows, strict=True) if not request.endswith(" peek 100")]


def window_of(case, name):
    """The window (us) of the limit that this key belongs to: prefix:{bNNN}:HEAD:POLICY[/LIMIT]:ID."""
    policy, _, limit = name.decode().split(":")[3].partition("/")
    at = next(i for i, line in enumerate(case.policies) if line.split()[:2] == ["policy", policy])
    limits = [line.split() for line in case.policies[at + 1:at + 1 + int(case.policies[at].split()[2])]]
    return next(int(words[4]) for words in limits if words[1] == (limit or "-"))


@pytest.mark.parametrize("case", SCRIPT, ids=lambda case: case.name)
def test_the_script_writes_and_answers_what_the_release_does(case, server):
    gave_back = False
    for want, got in zip(case.steps, run_script_case(server, case).steps, strict=True):
        gave_back |= gives_back(want)
        assert of_today(case, want, got.got) == of_today(case, want, want.got), f"{case.name} at {want.at_us}: {want.asked}"
        compare_keys(want, want.keys, got.keys, lambda name: window_of(case, name), gave_back)


@pytest.mark.parametrize("case", SCRIPT, ids=lambda case: case.name)
def test_the_script_continues_with_the_keys_of_the_release_at_any_batch(case, server):
    before = {}
    with server.client() as client, Replay(server) as replay:
        replay.configure(case.policies)
        for step in case.steps:
            restore(client, before)
            got = replay.batch(step.at_us, step.asked)
            assert of_today(case, step, got) == of_today(case, step, step.got), f"{case.name} at {step.at_us}: {step.asked}"
            compare_keys(step, step.keys, dump(client), lambda name: window_of(case, name), gives_back(step))
            before = step.keys
