"""test_judged.py: random schedules of every kind of question, in real time, to several daemons on one server at once, with the cache of
denials on, leases of another policy under load, and reloads in between. The reference model (tests/model) has to agree on every field of every answer.

The windows are so long that nothing comes back during a test, so the times of an answer are compared with some slack alone. After a
daemon has given units or slots back, others may deny from their cache for as long as `deny_cache.max_age`: the schedule waits for that.
"""

import dataclasses
import os
import random
import sys
import threading
import time

import pytest
from harness import ROOT, eventually

sys.path.insert(0, str(ROOT / "tests" / "model"))
import at_socket  # noqa: E402
import traces  # noqa: E402
from model import Policy  # noqa: E402
from reserving import ReservingTrace  # noqa: E402

DAYS_US = 86400 * 10**6
WINDOW_US = 5000 * DAYS_US
SLOT_TTL_US = 12 * 3600 * 10**6
MAX_AGE_S = 0.05
SLACK_MS = 60_000
TIMES = [at_socket.FIELDS.index(name) for name in ("retry_after_ms", "reset_after_ms", "of_reset_ms")]
SOURCE = at_socket.FIELDS.index("source")
STEPS, RELOAD_EVERY = 300, 60
SEEDS = range(int(os.environ.get("JUDGED_SEEDS", "2")))  # JUDGED_SEEDS=50 for a soak
LEASED = 100_000
GIVES_BACK = ("settle", "refund", "reset")
OF_LEASES = f"  leased: {{algorithm: fixed_window, limit: {LEASED}, window: 5000d, lease: 1s, warn_at: 50%}}\n"


def random_limit(rng):
    algorithm = rng.choice(traces.NATIVE)
    limit = Policy(algorithm, rng.choice((1, 2, 3, 5, 10, 30)), WINDOW_US, count_denied=algorithm in traces.COUNTS_DENIED and rng.random() < 0.2)
    if algorithm == "calendar_window":
        anchor = rng.choice((0, (2, 29), (6, 15), (9, 29)))
        limit = dataclasses.replace(limit, calendar=("year", rng.choice(("UTC", "Europe/Berlin")), anchor), window_us=365 * DAYS_US)
    return limit


def penalized(rng, limits):
    """Some with a penalty, of which each pause is longer than the test."""
    def penalty(p):
        takes = p.algorithm not in ("concurrency", "leaky_bucket") and rng.random() < 0.5
        return (DAYS_US // 1000, rng.choice((1, 2, 1000)), 30 * DAYS_US // 1000, rng.choice((0, 60 * DAYS_US // 1000))) if takes else ()

    if any(p.count_denied for _, p in limits):
        return limits
    return [(name, dataclasses.replace(p, penalty=penalty(p))) for name, p in limits]


def random_policies(rng, seed):
    """Some of one limit, some of several, some with slots; the last counts addresses by network."""
    policies = {}
    for i in range(5):
        n, debt = rng.choice((1, 1, 2, 3)), rng.random() < 0.5
        limits = [random_limit(rng) for _ in range(n)]
        if i == 0:
            limits.append(Policy("concurrency", rng.choice((1, 2, 5)), SLOT_TTL_US))
        named = [("-" if len(limits) == 1 else f"l{j}", dataclasses.replace(p, debt=debt)) for j, p in enumerate(limits)]
        named = [(name, counted if counted.algorithm != "concurrency" else p)
                 for (name, p), (_, counted) in zip(named, traces.some_count_checks(rng, named))]
        policies[f"judged-{seed}-{i}"] = penalized(rng, named)
    policies[f"judged-{seed}-net"] = [("-", Policy("fixed_window", 3, WINDOW_US))]
    overrides = {f"judged-{seed}-net": [("cidr/-/10.0.0.0/8", (5,)), ("cidr/-/10.1.0.0/16,2001:db8::/32", (1,)), ("10.1.1.1", (7,))]}
    return policies, overrides


def random_step(rng, policies, made):
    """(kind, asked, the reservation or slot)"""
    kind = rng.choices(("check", "peek", "most", "all", "reserve", "settle", "acquire", "refund", "reset"), (40, 8, 6, 8, 14, 14, 8, 4, 2))[0]
    open_ones = [one for one in made if one[1] is not None]
    if kind == "settle" and open_ones:
        (name, key, units), number = rng.choice(open_ones)
        return kind, [(name, key, rng.choice((0, units, units + 1, rng.randint(0, 2 * units + 2))))], (number, 0)
    with_slots, without = [], []
    for name, limits in policies.items():
        (with_slots if any(p.algorithm == "concurrency" for _, p in limits) else without).append(name)
    if kind == "settle":
        kind = "reserve"

    def one(names):
        name = rng.choice(names)
        key = rng.choice(("10.1.1.1", "10.1.2.3", "10.9.9.9", "192.0.2.1", "2001:db8::1")) if name.endswith("net") else rng.choice("aabc")
        return name, key, traces.random_cost(rng, rng.choice(policies[name])[1])

    if kind == "all":
        return kind, [one([name]) for name in rng.sample(without, min(len(without), rng.choice((1, 2, 3))))], None
    name, key, units = one([*with_slots, *with_slots] if kind == "acquire" else [*with_slots, *without] if kind in ("reserve", "peek", "reset") else without)
    if kind == "reserve" and name.endswith("net"):  # the model has no overrides for these
        kind = "check"
    if kind == "most" and any(p.counts_checks for _, p in policies[name]):
        kind = "check"
    units = {"reset": 0, "acquire": 1, "most": max(1, units), "refund": max(1, units)}.get(kind, units)
    return kind, [(name, key, units)], (len(made), 3_600_000) if kind == "reserve" else (f"s{len(made)}", 0) if kind == "acquire" else None


class LeasedLoad(threading.Thread):
    """Checks of a policy whose units the daemon takes ahead."""

    def __init__(self, client):
        super().__init__()
        self.client, self.admitted, self.over = client, 0, threading.Event()

    def run(self):
        while not self.over.is_set():
            self.admitted += sum(answer["allowed"] for answer in self.client.call("check_many", [["leased", "all"]] * 20))
            time.sleep(0.002)


def play(rng, daemons, clients, policies, config):
    """Asks one daemon after another. [(now in us, step, answer in the form of at_socket.results)]"""
    made, given, played = [], {}, []
    for n in range(STEPS):
        kind, asked, more = random_step(rng, policies, made)
        if n % RELOAD_EVERY == RELOAD_EVERY - 1:
            at = rng.randrange(len(daemons))
            before = clients[at].call("stats")["reloads"]
            daemons[at].configure(config.replace("lease: 1s, warn_at: 50%", f"lease: 1s, warn_at: {n % 100}%"))
            daemons[at].reload()
            eventually(lambda: clients[at].call("stats")["reloads"] > before, "a reload")
        step = {"reservation": more[0], "ttl_ms": more[1]} if kind in ("reserve", "settle") else {}
        method, params = at_socket.call(kind, asked, step, given)
        now_us = time.time_ns() // 1000
        answer = rng.choice(clients).call(method, *params)
        if kind in ("reserve", "acquire"):
            made.append((asked[0], more[0] if kind == "reserve" and answer["allowed"] else None))
        if kind != "reset":
            answer = at_socket.as_list(answer, kind, asked)
        last = answer[-1] if isinstance(answer, list) and isinstance(answer[-1], dict) else {}
        if "reservation" in last:
            given[more[0]], last["reservation"] = last["reservation"], True
        if "slot" in last:
            last["slot"] = True
        played.append((now_us, (kind, asked, more), answer))
        if kind in GIVES_BACK:
            time.sleep(MAX_AGE_S)
    return played


def is_close(expected, found):
    if isinstance(expected, dict):
        return isinstance(found, dict) and expected.keys() == found.keys() and all(
            all(map(is_close, value, found[name])) if name == "members" else value == found[name] for name, value in expected.items())
    if not isinstance(expected, list) or len(expected) != len(found):
        return expected == found
    same = [at for at in range(len(at_socket.FIELDS)) if at not in TIMES and at not in (SOURCE, at_socket.VERSION)]
    times = all(expected[at] == found[at] if -1 in (expected[at], found[at]) else abs(expected[at] - found[at]) <= SLACK_MS for at in TIMES)
    return times and all(expected[at] == found[at] for at in same) and all(map(is_close, expected[15:], found[15:]))


@pytest.mark.parametrize("seed", SEEDS)
def test_several_daemons_answer_a_random_schedule_as_the_model_does(seed, ratelimitd, any_store, connect):
    rng = random.Random(f"judged {seed}")
    policies, overrides = random_policies(rng, seed)
    trace = ReservingTrace(seed, policies, [], overrides=overrides)
    options = {} if any_store is None else {"redis_options": {"deny_cache": f"{{max_age: {int(MAX_AGE_S * 1000)}ms}}"}}
    config = "defaults: {deadline: 10s, on_failure: error}\npolicies:\n" + "".join(f"{line}\n" for line in at_socket.config(trace))
    config += OF_LEASES if any_store is not None else ""
    daemons = [ratelimitd(config, redis=any_store, **options) for _ in range(1 if any_store is None else 3)]
    clients = [connect(daemon) for daemon in daemons]
    for client in clients:
        client.call("hello", {"describe": True})
    loads = [LeasedLoad(connect(daemon)) for daemon in daemons] if any_store is not None else []
    for load in loads:
        load.start()
    try:
        played = play(rng, daemons, clients, policies, config)
    finally:
        for load in loads:
            load.over.set()
            load.join()
    trace.ticks = [(now_us, [step]) for now_us, step, _ in played]
    for (now_us, step, found), expected in zip(played, at_socket.results(trace)):
        assert is_close(expected, found), f"{step}\nmodel:  {expected}\ndaemon: {found}"
    if any_store is None:
        return
    assert 0 < sum(load.admitted for load in loads) <= LEASED
    stats = [client.call("stats") for client in clients]
    assert all(one["reload_failures"] == 0 for one in stats) and sum(one["reloads"] for one in stats) == STEPS // RELOAD_EVERY
