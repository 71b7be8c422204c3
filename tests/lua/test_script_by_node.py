"""test_script_by_node.py: a call whose keys lie in several hash slots of a node: they are not declared. The answers are those of
declared keys; a key that is not here, or that the user may not read, harms only the ops that name it, or that follow them."""

import contextlib
import itertools
import struct

import pytest
import traces
from clusters import Node
from harness import Redis, eventually
from redis.crc import key_slot
from redis.exceptions import ResponseError
from test_model import compare
from test_script import FUTURE_US, LOGS, NATIVE, SECOND, WRONG_TYPE, Batch, wide
from test_script_ops import FUTURE_MS, RESERVATION
from test_script_slots import CONSTANTS as SLOTS
from test_script_slots import slot

# Gives the test's time, which is the last argument, to a call with undeclared keys; such a call's commands name one key each.
WITH_TIME = """
local N, NOW = #ARGV - 1, nil
if #KEYS == 0 and N > 1 then NOW = table.remove(ARGV) end
local redis = {pcall = redis.pcall, call = (function(call)
    return function(name, ...)
        if name == 'MGET' and NOW then error('a command on several keys') end
        if name == 'TIME' and NOW then return {math.floor(NOW / 1000000), NOW % 1000000} end
        return call(name, ...)
    end
end)(redis.call)}
"""
# Takes the declared keys of a call to a single server away.
UNDECLARED = """
local ARGV, KEYS = ARGV, KEYS
if #KEYS > 1 then
    local all = {unpack(KEYS)}
    for _, argument in ipairs(ARGV) do all[#all + 1] = argument end
    ARGV, KEYS = all, {}
end
"""
N_TRACES = 30
AWAY, BARRED = -2, -3


@pytest.mark.parametrize("name", (*traces.EVERY, traces.MERGING, traces.UNDOING))
@pytest.mark.parametrize("max_keys, merge", [(64, 1), (3, 0)], ids=["merged", "plain"])
def test_undeclared_keys_give_the_answers_of_the_model(name, max_keys, merge, expected_of, replay_redis, redis, server, monkeypatch):
    monkeypatch.setenv("RL_BEFORE_SCRIPT", UNDECLARED + WITH_TIME)

    def decide(text):
        redis.flushall()
        return replay_redis(text, max_keys, merge)

    assert compare(expected_of(name)[:N_TRACES], name, server.kind, decide)


# ---- on real nodes --------------------------------------------------------------------------------------------------


class Pair:
    """Two masters; .redis asks the first one."""

    def __init__(self, kind):
        self.node, self.other = Node(kind), Node(kind)
        self.node.ask("CLUSTER", "ADDSLOTSRANGE", 0, 8191)
        self.other.ask("CLUSTER", "ADDSLOTSRANGE", 8192, 16383)
        self.node.ask("CLUSTER", "MEET", "127.0.0.1", self.other.port, self.other.bus_port)
        eventually(lambda: all(node.info["cluster_state"] == "ok" and node.info["cluster_size"] == "2" for node in (self.node, self.other)),
                   "it is well")
        self.redis = self.node.client()
        tags = (f"{{{number}}}" for number in itertools.count())
        self.tags = list(itertools.islice((tag for tag in tags if key_slot(tag.encode()) < 8192), 5))
        tags = (f"{{{number}}}" for number in itertools.count())
        self.elsewhere = next(tag for tag in tags if key_slot(tag.encode()) >= 8192)

    @contextlib.contextmanager
    def moves(self, tag):
        """Its keys that are there are still here, others would be there."""
        number = key_slot(tag.encode())
        self.node.ask("CLUSTER", "SETSLOT", number, "MIGRATING", self.other.id)
        try:
            yield
        finally:
            self.node.ask("CLUSTER", "SETSLOT", number, "STABLE")

    def close(self):
        self.redis.close()
        self.node.close()
        self.other.close()


@pytest.fixture(scope="module", params=Redis.KINDS)
def two(request):
    made = Pair(request.param)
    yield made
    made.close()


@pytest.fixture
def pair(two, script):
    two.redis.flushall()
    two.sha = two.redis.script_load(WITH_TIME + script)
    return two


class NodeBatch(Batch):
    is_declared = False


def limit_of(algorithm):
    """5 units in ten seconds."""
    if algorithm in ("bucket", "leaky_bucket"):
        return (5, 10_000_000, 50_000_000, 50_000_000)
    if algorithm == "calendar_window":
        return (5, FUTURE_MS - 5000, FUTURE_MS + 5000, FUTURE_MS + 15_000)
    return (5, 10_000_000 if algorithm == "sliding_log" else 10_000, 2**31 if algorithm == "sliding_counter" else 0, 0)


def check(pair, algorithm, keys):
    """`used` of each key, by a check of cost 2 of its own."""
    batch = NodeBatch().check(algorithm, keys, limit_of(algorithm), [(1, 2)] * len(keys))
    reply, _ = batch.integers(pair.redis, pair.sha)
    return [value for (what, _), value in zip(batch.expected, reply) if what == "used"]


def load(pair, algorithm, keys, groups):
    """`used` of each member of checks of cost 2 on loaded states."""
    batch = NodeBatch().load(algorithm, keys, limit_of(algorithm))
    for members in groups:
        batch.group(1, *((keys[i], 2) for i in members))
    batch.flags = 1
    reply, _ = batch.save().integers(pair.redis, pair.sha)
    return [value for (what, _), value in zip(batch.expected, reply) if what == "used"]


KINDS = {"RESERVE": RESERVATION + wide(1) + wide(0) + wide(60_000), "SETTLE": RESERVATION + wide(1) + wide(FUTURE_US) + wide(FUTURE_MS + 60_000),
         "REFUND": bytes(8) + wide(0) + wide(0) + wide(0), "SWEEP": bytes(8) + wide(0) * 3}


def values(redis):
    found = {}
    for key in redis.keys():
        kind = redis.type(key)
        found[key.decode()] = (redis.get(key) if kind == b"string" else redis.lrange(key, 0, -1) if kind == b"list" else
                               redis.zrange(key, 0, -1, withscores=True))
    return found


@pytest.mark.parametrize("algorithm", NATIVE)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_key_of_another_node_is_away_and_the_others_are_charged(pair, algorithm, is_first):
    here = [tag + "k" for tag in pair.tags[:3]]
    keys = [pair.elsewhere + "k", *here] if is_first else [*here, pair.elsewhere + "k"]
    away = keys.index(pair.elsewhere + "k")
    want = [AWAY if i == away else 0 for i in range(4)]
    assert check(pair, algorithm, keys) == want
    assert set(values(pair.redis)) == set(here)
    assert [used > 0 for used in check(pair, algorithm, keys) if used != AWAY] == [True] * 3


@pytest.mark.parametrize("algorithm", NATIVE)
@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("way", [check, lambda pair, algorithm, keys: load(pair, algorithm, keys, [[0], [1], [2]])], ids=["plain", "loaded"])
def test_a_key_of_a_moving_slot_is_charged_or_away_never_half(pair, algorithm, way, place):
    """Redis 7.4 and 8.0 may say that a key is away which is here; then nothing is charged."""
    keys = [tag + "k" for tag in pair.tags[:3]]
    way(pair, algorithm, keys)
    once = values(pair.redis)
    with pair.moves(pair.tags[place]):
        seen = way(pair, algorithm, keys)
        new = way(pair, algorithm, [tag + "new" for tag in pair.tags[:3]])
    assert all(used > 0 for i, used in enumerate(seen) if i != place) and new == [AWAY if i == place else 0 for i in range(3)]
    after = values(pair.redis)
    assert (after[keys[place]] == once[keys[place]]) == (seen[place] == AWAY)
    assert all(after[key] != once[key] for i, key in enumerate(keys) if i != place)
    assert keys[place].replace("k", "new") not in after


@pytest.mark.parametrize("algorithm", ["bucket", "sliding_log"])
def test_no_later_op_overtakes_one_that_is_away_on_its_other_keys(pair, algorithm):
    a, b, gone = pair.tags[0] + "a", pair.tags[1] + "b", pair.elsewhere + "k"
    step = limit_of(algorithm)[1] if algorithm == "bucket" else 1
    assert load(pair, algorithm, [a, b, gone], [[0], [0, 2], [0], [1]]) == [0, AWAY, AWAY, AWAY, 0]
    assert load(pair, algorithm, [a, b], [[0], [1]]) == [2 * step, 2 * step], "what came before the op that is away is charged"


@pytest.mark.parametrize("algorithm", ["bucket", "fixed_window", "sliding_log", "sliding_counter"])
def test_foreign_keys_among_64_harm_only_their_own_checks(pair, algorithm):
    keys = [f"{pair.tags[i % 5]}{i}" for i in range(62)] + [pair.elsewhere + "k", pair.tags[0] + "last"]
    foreign = [name for name in WRONG_TYPE if name != ("list" if algorithm in LOGS else "string")]
    for name, i in zip(foreign, (0, 7, 20, 33, 61)):
        WRONG_TYPE[name](pair.redis, keys[i])
    bad = {i for _, i in zip(foreign, (0, 7, 20, 33, 61))}
    want = [-1 if i in bad else AWAY if i == 62 else 0 for i in range(64)]
    assert check(pair, algorithm, keys) == want
    assert load(pair, algorithm, keys, [[i] for i in range(64) if i not in (1, 2)])[:1] == [-1]


@pytest.mark.parametrize("algorithm", NATIVE)
def test_a_reset_leaves_what_is_not_here(pair, algorithm):
    here, gone = [tag + "k" for tag in pair.tags[:3]], pair.elsewhere + "k"
    check(pair, algorithm, here)
    batch = NodeBatch().reset(algorithm, [here[0], gone, here[1], pair.tags[3] + "none"], limit_of(algorithm), True)
    reply, _ = batch.integers(pair.redis, pair.sha)
    assert reply == [1, AWAY, 1, 0] and set(values(pair.redis)) == {here[2]}


def test_a_record_gives_no_answer_if_a_key_of_its_op_is_away(pair):
    """Else the answer would stand although the op is sent again to where the key is."""
    states, record = [pair.tags[0] + "k", pair.tags[1] + "k"], pair.tags[2] + "r"

    def ask(keys):
        batch = NodeBatch().load("bucket", keys, limit_of("bucket"))
        batch.add_keys([record], True)
        batch.on_loaded("CHECK_ALL", [(key, 1) for key in keys], record=record)
        batch.flags = 1
        return batch.save().integers(pair.redis, pair.sha)[0]

    assert ask(states) == [0] * 6
    assert ask(states)[2] == 1, "it is known"
    before = values(pair.redis)
    assert ask([states[0], pair.elsewhere + "k"]) == [AWAY, AWAY, 0, 0, 0, 0]
    assert values(pair.redis) == before


def test_a_refund_whose_record_is_away_gives_nothing_back(pair):
    state, record = pair.tags[0] + "k", pair.elsewhere + "r"
    load(pair, "bucket", [state, pair.tags[1] + "k"], [[0], [1]])
    before = values(pair.redis)
    batch = NodeBatch().load("bucket", [state], limit_of("bucket"))
    batch.add_keys([record], True)
    batch.on_loaded("REFUND", [(state, 1)], 0, 1, record, KINDS["REFUND"])
    batch.flags = 1
    reply, _ = batch.save().integers(pair.redis, pair.sha)
    assert reply[0] == AWAY and values(pair.redis) == before


def test_an_op_that_is_away_writes_no_state_that_is_ahead_of_the_clock(pair):
    state = pair.tags[0] + "k"
    late = NodeBatch().check("bucket", [state, pair.tags[1] + "k"], limit_of("bucket"), [(1, 5)] * 2)
    late.integers(pair.redis, pair.sha, FUTURE_US + 3_600_000_000)
    before = values(pair.redis)
    assert load(pair, "bucket", [state, pair.elsewhere + "k"], [[0, 1]]) == [AWAY, AWAY]
    assert values(pair.redis) == before


@pytest.mark.parametrize("gone", ["state", "record"])
def test_an_op_with_a_record_is_away_as_a_whole(pair, gone):
    state, record = (pair.elsewhere if gone == what else pair.tags[i] for i, what in enumerate(("state", "record")))
    other = pair.tags[2] + "k"

    def ask():
        batch = NodeBatch().load("bucket", [state + "k", other], limit_of("bucket"))
        batch.add_keys([record + "r"], True)
        batch.on_loaded("CHECK_ALL", [(state + "k", 1)], record=record + "r")
        batch.group(1, (other, 1))
        batch.flags = 1
        return batch.save().integers(pair.redis, pair.sha)[0]

    for n in range(2):
        assert ask() == [AWAY, 0, 0, 0, n * limit_of("bucket")[1]]
        assert set(values(pair.redis)) == {other}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gone", ["state", "list"])
@pytest.mark.parametrize("algorithm", ["bucket", "fixed_window", "sliding_log"])
def test_what_gives_back_is_away_as_a_whole(pair, kind, gone, algorithm):
    state, listed = (pair.elsewhere if gone == what else pair.tags[i] for i, what in enumerate(("state", "list")))
    if gone == "list":
        load(pair, algorithm, [state + "k", pair.tags[2] + "k"], [[0], [1]])
    before = values(pair.redis)
    batch = NodeBatch().load(algorithm, [state + "k"], limit_of(algorithm))
    batch.add_keys([listed + "h"], False)
    batch.list = listed + "h"
    batch.on_loaded(kind, [(state + "k", int(kind in ("RESERVE", "REFUND")))], int(kind == "RESERVE"), int(kind == "REFUND"), None, KINDS[kind])
    batch.flags = 1
    reply, _ = batch.save().integers(pair.redis, pair.sha)
    assert reply[0] == AWAY and values(pair.redis) == before


@pytest.mark.parametrize("kind", ["acquire", "release", "renew"])
def test_slots_of_a_key_that_is_not_here_are_away(pair, kind):
    keys = [pair.tags[0] + "s", pair.elsewhere + "s"]

    def ask(kind):
        batch = NodeBatch()
        batch.flags = 1
        for key in keys:
            batch.add_keys([key], False)
        limit = batch.limit("concurrency", *SLOTS)
        for place, key in enumerate(keys, 1):
            if kind == "acquire":
                batch.loaded.append(("concurrency", limit, 1, place, [key]))
                batch.op("LOAD", limit, place, 1, 1, 0)
                batch.on_loaded("ACQUIRE", [(key, 1)], more=slot(1).encode())
                batch.op("SAVE", limit, place, 1, 0, 0)
            else:
                batch.op(kind.upper(), limit, place, 1, 0, 0, slot(1).encode())
        return batch.integers(pair.redis, pair.sha)[0]

    assert ask("acquire") == [0, 0, AWAY, 0]
    if kind != "acquire":
        assert ask(kind) == [1, AWAY]
    assert len(pair.redis.zrange(keys[0], 0, -1)) == (0 if kind == "release" else 1)


# ---- rights, errors, memory -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def as_user(pair, *rights):
    pair.redis.execute_command("ACL SETUSER", "some", "reset", "on", "nopass", "+@all", *rights)
    admin, pair.redis = pair.redis, pair.node.client(username="some", password="x")
    try:
        yield
    finally:
        pair.redis.close()
        pair.redis = admin
        admin.execute_command("ACL DELUSER", "some")


@pytest.mark.parametrize("algorithm", NATIVE)
@pytest.mark.parametrize("place", range(3))
def test_a_key_without_a_right_is_refused_alone(pair, algorithm, place):
    keys = [f"{tag}{'other' if i == place else 'k'}" for i, tag in enumerate(pair.tags[:3])]
    with as_user(pair, *(f"~{tag}k" for tag in pair.tags)):
        want = [BARRED if i == place else 0 for i in range(3)]
        assert check(pair, algorithm, keys) == want
        assert load(pair, algorithm, keys, [[0], [1], [2]])[place] == BARRED
    assert set(values(pair.redis)) == {key for i, key in enumerate(keys) if i != place}


def test_an_op_with_a_key_that_is_away_and_one_without_a_right_is_refused(pair):
    with as_user(pair, *(f"~{tag}k" for tag in (*pair.tags, pair.elsewhere))):
        assert load(pair, "bucket", [pair.tags[0] + "k", pair.elsewhere + "k", pair.tags[1] + "x"], [[0, 1, 2], [0]]) == [BARRED] * 3 + [0]


@pytest.mark.parametrize("algorithm", ["fixed_window", "bucket"])
def test_a_user_who_may_only_read_writes_nothing_and_the_error_says_that_it_may_be_half_done(pair, algorithm):
    """fixed_window: each key is refused alone, for its first command writes."""
    keys = [tag + "k" for tag in pair.tags[:3]]
    with as_user(pair, "%R~*"):
        if algorithm == "fixed_window":
            assert check(pair, algorithm, keys) == [BARRED] * 3
        else:
            with pytest.raises(ResponseError, match="@user_script"):
                check(pair, algorithm, keys)
    assert not values(pair.redis)


@pytest.mark.parametrize("is_half", [True, False])
def test_an_error_shows_whether_something_may_have_been_done(pair, is_half):
    """The daemon sends again what was certainly not done."""
    batch = NodeBatch()
    if is_half:
        batch.check("bucket", [pair.tags[0] + "k"], limit_of("bucket"))
    batch.check("fixed_window", [tag + "w" for tag in pair.tags[1:3]], limit_of("fixed_window"))
    with as_user(pair, "~*", "-incrby"), pytest.raises(ResponseError, match="(?i)permissions|run this command") as failed:
        batch.integers(pair.redis, pair.sha)
    assert ("user_script" in str(failed.value)) == is_half == bool(values(pair.redis))


@pytest.mark.parametrize("algorithm", ["fixed_window", "bucket", "sliding_log"])
@pytest.mark.parametrize("way", [check, lambda pair, algorithm, keys: load(pair, algorithm, keys, [[0], [1]])], ids=["plain", "loaded"])
def test_a_cluster_that_is_down_ends_the_call_with_nothing_done(pair, algorithm, way):
    keys = [tag + "k" for tag in pair.tags[:2]]
    pair.node.ask("CONFIG", "SET", "cluster-require-full-coverage", "yes")
    number = next(n for n in range(8192) if n not in {key_slot(tag.encode()) for tag in pair.tags})
    pair.node.ask("CLUSTER", "DELSLOTS", number)
    try:
        eventually(lambda: pair.node.info["cluster_state"] == "fail", "it is down")
        with pytest.raises(ResponseError, match="(?i)down") as failed:
            way(pair, algorithm, keys)
        assert "user_script" not in str(failed.value)
    finally:
        pair.node.ask("CONFIG", "SET", "cluster-require-full-coverage", "no")
        pair.node.ask("CLUSTER", "ADDSLOTS", number)
        eventually(lambda: pair.node.info["cluster_state"] == "ok", "it is well")
    assert not values(pair.redis)


@pytest.mark.parametrize("algorithm", ["fixed_window", "bucket", "sliding_log"])
def test_full_memory_ends_the_call_with_nothing_done(pair, algorithm):
    keys = [pair.elsewhere + "k", *(tag + "k" for tag in pair.tags[:2])]
    pair.node.ask("CONFIG", "SET", "maxmemory", 1)
    try:
        with pytest.raises(ResponseError, match="(?i)memory|OOM"):
            check(pair, algorithm, keys)
    finally:
        pair.node.ask("CONFIG", "SET", "maxmemory", 0)
    assert not values(pair.redis)


def test_an_empty_batch_with_two_scratch_keys_leaves_nothing(pair, script):
    sha = pair.redis.script_load(script)
    packet = struct.pack("<I", 77) + wide(0) + struct.pack("<BHBH", 0, 0, 0, 0)
    for keys in ([pair.tags[0] + "a", pair.tags[1] + "b"], [pair.tags[0] + "a", pair.elsewhere + "b"]):
        reply = pair.redis.evalsha(sha, 0, *keys, packet)
        assert len(reply) == 3 and reply[1:] == [0, 77]
    assert not pair.redis.keys()


@pytest.mark.parametrize("gone", ["pause", "state"])
@pytest.mark.parametrize("reset", [True, False])
def test_a_limit_whose_pause_is_away_is_away_as_a_whole(pair, gone, reset):
    pause, state = ((pair.elsewhere if gone == what else pair.tags[0]) + what for what in ("pause", "state"))
    other, there = pair.tags[1] + "k", (struct.pack("<IIH", 1, 1, 0) if reset else None)
    if gone == "state" and there:
        pair.redis.set(pause, there)
    before = values(pair.redis)
    batch = NodeBatch()
    batch.flags = 1
    batch.add_keys([pause], True)
    more = wide(1000) + wide(1) + wide(1000) + wide(365 * 86_400_000)
    batch.op("PAUSE", 0, 2, 1, 1, int(reset), more)
    if reset:
        batch.expect("used", pause)
        batch.reset("bucket", [state, other], limit_of("bucket"), True)
        reply, _ = batch.integers(pair.redis, pair.sha)
        assert reply[:2] == [AWAY, AWAY]
    else:
        batch.load("bucket", [state, other], limit_of("bucket"))
        batch.group(1, (state, 6))
        batch.expect("level", pause)
        batch.expect("end", pause)
        batch.group(1, (other, 2))
        reply, _ = batch.save().integers(pair.redis, pair.sha)
        assert reply[0] == AWAY
    assert {key: value for key, value in values(pair.redis).items() if key != other} == before
