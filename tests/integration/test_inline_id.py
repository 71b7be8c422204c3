"""test_inline_id.py: an inline policy with an `id`: its limit may move, and its counter stays. Judged by the model."""

import copy
import random
import sys
from pathlib import Path

import pytest

from harness import RpcError, eventually, stored_keys

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "model"))
import model  # noqa: E402

INLINE = "inline: {allow: true}\ndefaults: {deadline: 5s}\n"  # Redis is slow on a busy machine
DAY_US = 24 * 3600 * 1_000_000
SHAPES = {
    "fixed_window": {"algorithm": "fixed_window"},
    "first_hit": {"algorithm": "fixed_window", "start": "first_hit"},
    "sliding_log": {"algorithm": "sliding_log"},
    "sliding_counter": {"algorithm": "sliding_counter"},
    "token_bucket": {"algorithm": "token_bucket"},
}
FIELDS = {"allowed": "allowed", "limit": "limit", "remaining": "remaining", "retry": "retry_after_ms", "reset": "reset_after_ms"}


def moving(shape, limit, window="10m", id="GET /search", **more):
    return {**SHAPES[shape], "limit": limit, "window": window, "id": id, **more}


@pytest.fixture
def client(any_store, ratelimitd, connect):
    daemon = ratelimitd(INLINE, redis=any_store)
    client = connect(daemon)
    wanted = "memory" if any_store is None else "redis"
    probe = moving("first_hit", 1, id="probe")
    eventually(lambda: client.check(probe, "probe", 0)["source"] == wanted, "the store is there")
    return client


def left(client, shape, limit, cost, key="a"):
    answer = client.check(moving(shape, limit, window="30d"), key, cost)
    return answer["allowed"], answer["remaining"]


@pytest.mark.parametrize("shape", SHAPES)
def test_eight_of_ten_used_then_the_plan_says_five_then_a_hundred(client, shape):
    assert left(client, shape, 10, 8) == (True, 2)
    is_bucket = shape == "token_bucket"  # where the time until full stays
    assert left(client, shape, 5, 0) == (True, 1 if is_bucket else 0)
    assert left(client, shape, 5, 2) == (False, 1 if is_bucket else 0)
    assert left(client, shape, 100, 0) == (True, 20 if is_bucket else 92)
    assert left(client, shape, 100, 1) == (True, 19 if is_bucket else 91)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_limit_that_moves_with_the_load_admits_no_more_than_its_largest_value(client, shape):
    answers = [client.check(moving(shape, 10 - n % 5, window="30d"), "a") for n in range(100)]
    assert 0 < sum(answer["allowed"] for answer in answers) <= 10


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("in_one", [False, True])
def test_two_windows_that_take_turns_have_a_counter_each(client, shape, in_one):
    """Else each would begin its own window on the other's counter: 40 of 40 were admitted under a limit of 3."""
    asked = [[moving(shape, 3, window=("1h", "2h")[n % 2]), "a"] for n in range(40)]
    answers = client.call("check_many", asked) if in_one else [client.check(*one) for one in asked]
    assert sum(answer["allowed"] for answer in answers) <= 8  # 3 of each window, and once more where one ends meanwhile


@pytest.mark.parametrize("one, other", [
    ({"algorithm": "fixed_window", "window": "30d"}, {"algorithm": "sliding_log", "window": "30d"}),
    ({"algorithm": "fixed_window", "window": "30d"}, {"algorithm": "fixed_window", "window": "30d", "start": "first_hit"}),
    ({"algorithm": "calendar_window", "window": "year"}, {"algorithm": "calendar_window", "window": "year", "anchor": "2026-03-31"}),
    ({"algorithm": "calendar_window", "window": "week"}, {"algorithm": "calendar_window", "window": "week", "week_start": "friday"}),
    ({"algorithm": "sliding_log", "window": "30d"}, {"algorithm": "sliding_log", "window": "31d"}),
])
def test_what_may_not_move_has_a_counter_of_its_own(client, one, other):
    """Another algorithm, start, first day or window under one id: in turns, and in one batch."""
    asked = [[{**settings, "id": "GET /search", "limit": limit}, "a"] for limit in (3, 5) for settings in (one, other)]
    answers = client.call("check_many", asked)
    assert [answer["remaining"] for answer in answers] == [2, 2, 3, 3]
    assert [client.remaining(*question) for question in asked] == [1, 1, 3, 3]


def test_the_window_of_an_override_under_an_id_has_a_counter_of_its_own(client):
    def settings(limit, window):
        return moving("sliding_log", limit, window="30d", overrides=[{"key": "vip", "window": window}])

    assert client.check(settings(5, "29d"), "vip", 3)["remaining"] == 2
    assert client.check(settings(9, "29d"), "vip", 3)["remaining"] == 3
    assert client.check(settings(9, "28d"), "vip", 3)["remaining"] == 6


@pytest.mark.parametrize("id", ["x" * 256, "\u00e4" * 128, "%s {b1}:a@b", " "])
def test_an_id_is_any_text_of_up_to_256_bytes(client, id):
    assert client.check(moving("fixed_window", 5, window="30d", id=id), "a", 2)["remaining"] == 3
    assert client.check(moving("fixed_window", 7, window="30d", id=id), "a", 2)["remaining"] == 3
    assert id in [policy.get("id") for policy in client.call("policies")]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_model_agrees_while_the_limit_moves(ratelimitd, connect, shape):
    client = connect(ratelimitd(INLINE, arguments=["--test-clock"]))
    rng = random.Random(shape)
    for trace in range(8):
        now, window_ms = 1_000_000_000_000_000 + trace * 40 * DAY_US, rng.choice([700, 60_000, 3_600_000])
        key, limits = f"k{trace}", [rng.randint(1, 30) for _ in range(3)] + [rng.choice([0, 1000])]
        state = None
        for _ in range(300):
            now += rng.choice([0, 0, rng.randint(0, 5_000), rng.randint(0, window_ms * 400)])
            limit = rng.choice(limits)
            policy = model.Policy(shape, limit, window_ms * 1000)
            client.call("test_clock", now)
            cost = rng.choice([0, 1, 1, 1, 2, rng.randint(0, 9)])
            answer = client.check(moving(shape, limit, window=f"{window_ms}ms"), key, cost)
            if limit == 0:  # it denies without asking the store
                assert answer["allowed"] == (cost == 0)
                continue
            seen = copy.copy(state or model.ALGORITHMS[shape](policy))
            seen.obey(policy)
            wanted = seen.step(now, "check", cost)
            state = seen if cost and wanted["allowed"] else state  # a denial writes nothing: what is below a microsecond stays, too
            wanted["retry"] = 0 if wanted["allowed"] else wanted["retry"]
            assert {name: answer[field] for name, field in FIELDS.items()} == {name: wanted[name] for name in FIELDS}, (trace, now, limit, cost)


@pytest.mark.parametrize("shape", SHAPES)
def test_batches_of_moving_limits_agree_with_the_model(client, shape):
    """Through every store: pipelined, with the deny cache on, by two connections' worth of checks in a batch."""
    rng = random.Random(f"batch {shape}")
    states, limits = {}, [1, 2, 5, 7, 12, 40]
    for _ in range(12):
        asked = [(f"k{rng.randint(1, 4)}", rng.choice(limits), rng.choice([0, 1, 1, 2, 3])) for _ in range(rng.randint(1, 60))]
        answers = client.call("check_many", [[moving(shape, limit, window="30d"), key, cost] for key, limit, cost in asked])
        for (key, limit, cost), answer in zip(asked, answers):
            policy = model.Policy(shape, limit, 30 * DAY_US)
            state = states.setdefault(key, model.ALGORITHMS[shape](policy))
            state.obey(policy)
            wanted = state.step(0, "check", cost)
            assert (answer["allowed"], answer["remaining"]) == (wanted["allowed"], wanted["remaining"]), (key, limit, cost)


def test_the_names_in_redis_have_the_ids_hash_and_what_may_not_move(redis, ratelimitd, connect):
    client = connect(ratelimitd(INLINE, redis=redis))
    probe = moving("first_hit", 1, id="probe")
    eventually(lambda: client.check(probe, "a", 0)["source"] == "redis", "the store is there")

    def hashed(text):
        value = 0xcbf29ce484222325
        for byte in text.encode():
            value = (value ^ byte) * 0x100000001b3 % 2**64
        return f"{value:016x}"

    for limit in (5, 6, 7):
        client.check(moving("fixed_window", limit, window="1d"), "a")
        client.check(moving("sliding_counter", limit, window="1d"), "a", {"request_id": f"r{limit}"})
    client.check(moving("fixed_window", 5, window="2d"), "a")
    client.call("reserve", moving("fixed_window", 9, window="1d"), "a", 2)
    names = sorted(name.decode() for name in stored_keys(redis.client()))
    assert all(f":id+{hashed('GET /search')}" in name or "note1" in name or "probe" in name for name in names), names
    heads = [name.split(":")[2:4] for name in names]
    windows = [owner for tag, owner in heads if tag == "fw1"]
    assert len(windows) == 2 and len({owner.split("@")[1] for owner in windows}) == 2
    assert [tag for tag, _ in heads].count("sc1") == 1 and [tag for tag, _ in heads].count("hold1") == 1


def test_of_each_id_one_policy_is_kept_and_its_counts_go_on(client):
    before = client.call("stats")["inline_policies"]
    for limit in range(10, 30):
        client.check(moving("fixed_window", limit, window="30d"), "a")
    assert client.call("stats")["inline_policies"] == before + 1
    listed, = [policy for policy in client.call("policies") if policy.get("id") == "GET /search"]
    assert listed["inline"] and listed["name"].startswith("id+") and listed["limits"][0]["limit"] == 29
    assert listed["allowed"] == 20


def test_explain_shows_the_id_and_reset_takes_its_name(client):
    policy = moving("sliding_log", 5, window="30d")
    client.check(policy, "a", 4)
    seen = client.call("explain", moving("sliding_log", 9, window="30d"), "a", 0)
    assert (seen["id"], seen["remaining"]) == ("GET /search", 5) and seen["policy"].startswith("id+")
    assert client.call("refund", seen["policy"], "a", 1)["refunded"] == 1
    assert client.call("reset", seen["policy"], "a") == {"removed": True}
    assert client.remaining(policy, "a") == 5


def test_people_are_shown_the_id(ratelimitd, connect):
    daemon = ratelimitd(INLINE)
    connect(daemon).check(moving("sliding_log", 5), "a")
    assert "\n  id     GET /search\n" in daemon.ctl("policies").stdout
    assert "\nid        GET /search\n" in daemon.ctl("explain", "{id: GET /search, algorithm: sliding_log, limit: 5, window: 10m}", "a").stdout


def test_a_reservation_settles_on_the_id_although_the_limit_has_moved(client):
    policy = moving("fixed_window", 10, window="30d")
    made = client.call("reserve", policy, "a", 4)
    assert client.check(moving("fixed_window", 20, window="30d"), "a")["remaining"] == 15
    assert client.call("settle", made["reservation"], 1)["refunded"] == 3
    assert client.remaining(policy, "a") == 8


def test_a_request_id_belongs_to_the_id(client):
    first = client.check(moving("fixed_window", 10, window="30d"), "a", {"request_id": "r"})
    again = client.check(moving("fixed_window", 20, window="30d"), "a", {"request_id": "r"})
    assert first["remaining"] == 9 and again["allowed"]
    assert client.remaining(moving("fixed_window", 10, window="30d"), "a") == 9


def test_two_numbers_of_one_counter_in_a_check_all_are_refused(client):
    shared = {"key_format": "{tenant}:{user}", "by": ["tenant"]}
    with pytest.raises(RpcError, match=r"BAD_REQUEST: checks\[1\]: is the same policy and key as checks\[0\]"):
        client.call("check_all", [[moving("fixed_window", 5), "a"], [moving("fixed_window", 6), "a"]])
    with pytest.raises(RpcError, match=r"BAD_REQUEST: checks\[1\]: shares the counter of "):
        client.call("check_all", [[moving("fixed_window", 5, **shared), "t:a"], [moving("fixed_window", 6, **shared), "t:b"]])
    whole = client.call("check_all", [[moving("fixed_window", 5, **shared), "t:a", 2], [moving("fixed_window", 5, **shared), "t:b", 2]])
    assert whole["allowed"] and whole["remaining"] == 1
    apart = client.call("check_all", [[moving("fixed_window", 5, window="1h", **shared), "t:a"],
                                      [moving("fixed_window", 6, window="2h", **shared), "t:b"]])
    assert apart["allowed"]  # two windows are two counters


@pytest.mark.parametrize("more, words", [
    ({"id": ""}, "policy.id: is not an id; write a text of 1 to 256 bytes"),
    ({"id": "x" * 257}, "policy.id: is not an id"),
    ({"id": "a\nb"}, "policy.id: is not an id"),
    ({"id": "a\x7f"}, "policy.id: is not an id"),
    ({"id": None}, "policy.id: is not an id"),
    ({"id": ["a"]}, "policy.id: is not an id"),
    ({"algorithm": "token_bucket", "burst": 9}, "policy.burst: does not go with id"),
    ({"algorithm": "leaky_bucket"}, "policy.algorithm: leaky_bucket does not go with id"),
    ({"algorithm": "leaky_bucket", "max_wait": "1s"}, "policy.max_wait: does not go with id"),
    ({"algorithm": "sliding_log", "count_denied": True}, "policy.count_denied: of a sliding_log does not go with id"),
    ({"lease": "1s"}, "policy.lease: does not go with id"),
    ({"on_change": "keep"}, "policy.on_change: does not go with id"),
    ({"merge_back": True}, "policy.merge_back: does not go with id"),
    ({"debt": True}, "policy.debt: does not go with id"),
    ({"candidate": [{"name": "c", "algorithm": "gcra", "limit": 5, "window": "1s"}]}, "policy.candidate: does not go with id"),
    ({"algorithm": "gcra", "overrides": [{"key": "vip", "burst": 9}]}, "policy.overrides[0].burst: does not go with id"),
])
def test_what_does_not_go_with_an_id_is_refused_and_charges_nothing(ratelimitd, connect, more, words):
    client = connect(ratelimitd(INLINE))
    plain = moving("fixed_window", 5)
    client.check(plain, "a")
    with pytest.raises(RpcError) as error:
        client.check({**plain, **more}, "a")
    assert error.value.code == "BAD_REQUEST" and error.value.message.startswith(words), error.value
    assert client.remaining(plain, "a") == 4


def test_an_id_of_one_limit_of_a_list_and_in_a_file_is_refused(ratelimitd, connect, tmp_path):
    client = connect(ratelimitd(INLINE))
    limit = {"name": "a", "algorithm": "gcra", "limit": 5, "window": "1s"}
    with pytest.raises(RpcError, match=r"BAD_REQUEST: policy.limits\[0\].id: for the settings of a policy in a request"):
        client.check({"limits": [{**limit, "id": "x"}]}, "a")
    assert client.check({"limits": [limit], "id": "x"}, "a")["allowed"]
    daemon = ratelimitd(INLINE + "policies:\n  p: {algorithm: gcra, limit: 5, window: 1s}\n")
    daemon.configure(INLINE + "policies:\n  p: {algorithm: gcra, limit: 5, window: 1s, id: x}\n")
    assert "policies.p.id: for the settings of a policy in a request" in daemon.ctl("reload", "--dry-run").stdout + daemon.ctl("reload").stderr


def test_slots_of_an_id_are_held_while_its_limit_moves(client):
    def slots(limit):
        return {"algorithm": "concurrency", "limit": limit, "slot_ttl": "30s", "id": "work"}

    first = client.call("acquire", slots(2), "a")
    assert first["allowed"] and client.call("acquire", slots(5), "a")["remaining"] == 3
    assert not client.call("acquire", slots(2), "a")["allowed"]
    assert client.call("release", first["slot"])["released"]
    assert client.call("acquire", slots(2), "a")["allowed"]
