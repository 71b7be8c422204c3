"""test_script_moving.py: while a hash slot moves, its old node refuses commands on keys that it does not have. A script that
empties a key and names it again would end half way there: what it has charged would stay, the rest would be lost."""

import contextlib

import pytest
import traces
from clusters import Node
from harness import Redis, eventually
from redis.crc import key_slot
from test_model import compare
from test_script import FUTURE_US, Batch
from test_script_ops import FUTURE_MS, check, log, ops, refund, reserve, settle, window
from test_script_slots import CONSTANTS as SLOTS
from test_script_slots import ops as slot_ops

# A server on which every slot moves, and its keys are all still there: an emptied key is one that the node does not have.
BEFORE = """
local redis = (function(server)
    local gone = {}
    local function guard(ask, refuse)
        return function(name, ...)
            local keys = name == 'TIME' and {} or name == 'MGET' and {...} or {(...)}
            local was = {}
            for i, key in ipairs(keys) do
                if gone[key] then return refuse(name .. ' of ' .. key .. ', which the script has emptied') end
                was[i] = server.call('EXISTS', key)
            end
            local answer = ask(name, ...)
            for i, key in ipairs(keys) do
                if was[i] == 1 and server.call('EXISTS', key) == 0 then gone[key] = true end
            end
            return answer
        end
    end
    return {call = guard(server.call, error), pcall = guard(server.pcall, function(why) return {err = why} end)}
end)(redis)
"""
N_TRACES = 30


@pytest.mark.parametrize("name", (*traces.EVERY, traces.MERGING, traces.UNDOING))
@pytest.mark.parametrize("max_keys, merge", [(64, 1), (2, 0)], ids=["merged", "plain"])
def test_no_command_names_a_key_that_the_script_has_emptied(name, max_keys, merge, expected_of, replay_redis, redis, server, monkeypatch):
    monkeypatch.setenv("RL_BEFORE_SCRIPT", BEFORE)

    def decide(text):
        redis.flushall()
        return replay_redis(text, max_keys, merge)

    assert compare(expected_of(name)[:N_TRACES], name, server.kind, decide)


# ---- on real nodes --------------------------------------------------------------------------------------------------


class Moving:
    """A node that has every slot, and another that one of them can move to."""

    TAG = "{t}"
    SLOT = key_slot(TAG.encode())

    def __init__(self, kind):
        self.node, self.other = Node(kind), Node(kind)
        self.node.ask("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        self.node.ask("CLUSTER", "MEET", "127.0.0.1", self.other.port, self.other.bus_port)
        eventually(lambda: self.node.info["cluster_state"] == "ok" and self.other.id in self.node.ask("CLUSTER", "NODES"), "it is well")

    @contextlib.contextmanager
    def moves(self):
        eventually(lambda: self.node.ask("CLUSTER", "SETSLOT", self.SLOT, "MIGRATING", self.other.id), "the slot moves")
        try:
            yield
        finally:
            self.node.ask("CLUSTER", "SETSLOT", self.SLOT, "STABLE")

    def close(self):
        self.node.close()
        self.other.close()


@pytest.fixture(scope="module", params=Redis.KINDS)
def moving(request):
    made = Moving(request.param)
    yield made
    made.close()


K, H = "{t}k", "{t}h"
LATER = FUTURE_US + 5000


def junk_log(redis, sha):
    redis.rpush(K, FUTURE_US - 5, "x")


def times(*some):
    return lambda redis, sha: redis.rpush(K, *(FUTURE_US + at for at in some))


def reserved(limit, units=4, ttl_ms=60_000, more=()):
    def make(redis, sha):
        ops(redis, sha, limit, [K, H], reserve(units, ttl_ms))
        for cost, at in more:
            ops(redis, sha, limit, [K], check(cost), now=at)
    return make


def held(*numbers):
    return lambda redis, sha: slot_ops(redis, sha, *(("acquire", K, n) for n in numbers))


def ended(redis, sha):
    redis.zadd(K, {b"%032d" % 9: FUTURE_MS - 1})


def of(limit, *some, keys=(K, H), now=LATER):
    return lambda redis, sha: ops(redis, sha, limit, list(keys), *some, now=now)


def of_slots(*some):
    return lambda redis, sha: slot_ops(redis, sha, *some)


def compat(algorithm, count, cost, limit=3):
    """Its own clock is the server's: scores and expiries are of now."""
    return lambda redis, sha: Batch().check(algorithm, [K], (limit, 60_000, 0, 0), [(count, cost)]).integers(redis, sha, now=0)[0][0]


def over(redis, sha):
    redis.zadd(K, {"old": 1})


SETTLED = settle(4, FUTURE_US, FUTURE_MS + 60_000, 1)
CANCELLED = settle(4, FUTURE_US, FUTURE_MS + 60_000, 0)
SWEPT = ("SWEEP", 0, 0, False, bytes(29))
CASES = {
    **{f"{name} of the only reservation, {limit[0]}": (reserved(limit), of(limit, op))
       for name, op in (("settle", SETTLED), ("cancel", CANCELLED)) for limit in (window(9), log(9), ("bucket", 1, 10**9, 9 * 10**9, 9 * 10**9))},
    "settle twice": (reserved(window(9)), of(window(9), SETTLED, SETTLED)),
    "reserve after the only one that has ended": (reserved(window(9), ttl_ms=1), of(window(9), reserve(2, 1000))),
    "refund, and with it the only one that has ended": (reserved(window(9), ttl_ms=1), of(window(9), refund(1))),
    "sweep of the only one, then reserve": (reserved(window(9), ttl_ms=1), of(window(9), SWEPT, SWEPT, reserve(2, 1000))),
    "sweep of a log's only one": (reserved(log(9), ttl_ms=1), of(log(9), SWEPT, SWEPT)),
    "settle of one that has ended": (reserved(window(9), ttl_ms=1), of(window(9), settle(4, FUTURE_US, FUTURE_MS + 1, 1))),
    "cancel in a log with a newer time": (reserved(log(9), more=[(1, FUTURE_US + 1)]), of(log(9), CANCELLED)),
    "cancel in a log with newer and older times": (reserved(log(9), 2, more=[(1, FUTURE_US + 1)]),
                                                   of(log(9), settle(2, FUTURE_US, FUTURE_MS + 60_000, 0))),
    "refund of all but the newer times of a log": (times(0, 1, 2, 3), of(log(9), refund(9, FUTURE_US + 2), keys=[K])),
    "refund of all of a log": (times(0, 1), of(log(9), refund(9), keys=[K])),
    "refund of all of a log, then check": (times(0, 1), of(log(9), refund(9), check(1), refund(1), check(9), keys=[K])),
    "a log ahead of the clock": (times(90_000, 90_001), of(log(9), check(1), keys=[K])),
    "a log partly ahead of the clock": (times(0, 90_000, 90_001), of(log(9), check(1), keys=[K])),
    "a log of something else": (junk_log, of(log(9), check(2), keys=[K])),
    "a full log of something else": (junk_log, of(log(2), check(2), keys=[K])),
    "acquire after a lease that has ended": (ended, of_slots(("acquire", K, 1))),
    "release of the only slot, then acquire": (held(1), of_slots(("release", K, 1), ("acquire", K, 2), ("release", K, 2))),
    "release of the only slot twice, then renew": (held(1), of_slots(("release", K, 1), ("release", K, 1), ("renew", K, 1))),
    "release of all": (held(1, 2), of_slots(("release", K, 1), ("release", K, 2), ("release", K, 2))),
    **{f"{name}, {count} of {cost}": (over, compat(name, count, cost)) for name in ("compat_rlaas_sliding", "compat_endpoint_log")
       for count, cost in ((1, 1), (5, 1), (1, 0))},
}


def kept(redis):
    """What is stored, by key; times that the server's clock has set are left out."""
    found = {}
    for key in redis.keys():
        kind = redis.type(key)
        found[key] = (redis.get(key) if kind == b"string" else redis.lrange(key, 0, -1) if kind == b"list" else
                      sorted(redis.zrange(key, 0, -1, withscores=True)))
        assert redis.pttl(key) > 0
    return found


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_lost_where_a_key_would_be_empty_in_between_while_its_slot_moves(moving, script, case):
    prepare, ask = CASES[case]

    def outcome(way):
        with moving.node.client() as redis:
            redis.flushall()
            sha = redis.script_load(script)
            prepare(redis, sha)
            with way:
                reply = ask(redis, sha)
            left = kept(redis)
        return reply, left if "compat" not in case else len(left)

    assert outcome(moving.moves()) == outcome(contextlib.nullcontext())
