"""test_denial_log.py: which denied checks the daemon logs, how many, and the form of their keys."""

import os
import re

import pytest
from harness import eventually

POLICIES = """
defaults: {deadline: 5s}
policies:
  login: {algorithm: fixed_window, limit: 1, window: 1d}
  other: {algorithm: fixed_window, limit: 1, window: 1d}
  never: {algorithm: fixed_window, limit: 0, window: 1d}
  jobs: {algorithm: concurrency, limit: 1, slot_ttl: 30s}
  search:
    limits:
      - {name: second, algorithm: token_bucket, limit: 100, window: 1s}
      - {name: day, algorithm: fixed_window, limit: 2, window: 1d}
  tried: {algorithm: fixed_window, limit: 1, window: 1d, shadow: true}
  tested:
    algorithm: fixed_window
    limit: 9
    window: 1d
    candidate: [{name: day, algorithm: fixed_window, limit: 1, window: 1d}]
"""


def log(**settings):
    return "log: {" + ", ".join(f"{name}: {value}" for name, value in settings.items()) + "}\n"


FIRST = log(denials="first", denials_per_second=1000) + "keys: {in_log: clear}\n"
ALL = log(denials="sampled", denials_per_second=1000) + "keys: {in_log: clear}\n"


@pytest.fixture
def served(ratelimitd, connect):
    """A daemon with these settings, and a client of it."""
    def start(settings, **options):
        daemon = ratelimitd(settings + POLICIES, **options)
        return daemon, connect(daemon)

    return start


def denials(daemon):
    """The lines so far, without the prefix before `denied: `. Call stop() first: then all lines have been read."""
    return [line.split("denied: ", 1)[1] for line in list(daemon.log) if "denied: " in line]


def denials_at_end(daemon):
    daemon.stop()
    return denials(daemon)


def words(line):
    """("policy", "login"), ... of a line."""
    pairs = re.sub(r" \(\d+ held back\)$", "", line).split(" ")
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


# Which denials

def test_denials_are_not_logged_unless_asked_for(served):
    daemon, client = served("")
    for _ in range(3):
        client.check("login", "alice")
    assert denials_at_end(daemon) == []
    assert "alice" not in daemon.text()


def test_a_denial_names_policy_limit_key_cost_wait_source_and_process(served):
    daemon, client = served(FIRST)
    for _ in range(3):
        client.check("search", "alice")
    client.check("never", "alice", 3)
    client.check("login", "alice", 2)
    lines = denials_at_end(daemon)
    who = f"uid {os.getuid()} pid {os.getpid()}"
    wait = r"(\d+h(\d+m)?|\d+m(\d+s)?|[\d.]+m?s|1d)"
    assert re.fullmatch(rf"policy search limit search/day key alice cost 1 retry {wait} source memory {who}", lines[0])
    assert lines[1] == f"policy never limit never key alice cost 3 retry never source memory {who}"
    assert lines[2] == f"policy login limit login key alice cost 2 retry never source memory {who}"
    assert len(lines) == 3


def test_first_logs_a_policy_and_key_once(served):
    daemon, client = served(FIRST)
    for policy in ("login", "other"):
        for key in ("alice", "bob"):
            for _ in range(5):
                client.check(policy, key)
    assert [(words(line)["policy"], words(line)["key"]) for line in denials_at_end(daemon)] == [
        ("login", "alice"), ("login", "bob"), ("other", "alice"), ("other", "bob")]


def test_members_of_lists_reservations_and_slots_that_are_denied_are_logged(served):
    daemon, client = served(ALL)
    client.call("check_many", [["login", "m1"], ["never", "m2"], ["login", "m3"]])
    client.call("check_all", [["login", "a1"], ["never", "a2"]])
    client.call("reserve", "never", "r1", 1)
    client.call("acquire", "jobs", "s1")
    client.call("acquire", "jobs", "s1")
    client.check("never", "o1", {"at_most": 5})
    lines = [words(line) for line in denials_at_end(daemon)]
    assert [(line["policy"], line["key"]) for line in lines] == [
        ("never", "m2"), ("never", "a2"), ("never", "r1"), ("jobs", "s1"), ("never", "o1")]


def test_what_charges_nothing_is_no_denial(served):
    daemon, client = served(ALL)
    client.call("peek", "never", "k")
    client.call("explain", "never", "k")
    client.call("refund", "login", "k", 1)
    client.call("reset", "never", "k")
    assert denials_at_end(daemon) == []


def test_shadow_policies_and_candidates_deny_nothing(served):
    daemon, client = served(ALL)
    for _ in range(3):
        assert client.check("tried", "k")["allowed"]
        assert client.check("tested", "k")["allowed"]
    client.call("check_many", [["tried", "k"], ["tested", "k"]])
    client.call("check_all", [["tried", "k"], ["tested", "k"]])
    assert denials_at_end(daemon) == []


def test_each_denied_member_of_a_long_list_is_logged(served):
    daemon, client = served(ALL)
    client.call("check_many", [["never" if i % 2 else "login", f"k{i}"] for i in range(300)])
    assert [words(line)["key"] for line in denials_at_end(daemon)] == [f"k{i}" for i in range(1, 300, 2)]


def test_a_failure_answer_that_denies_has_a_reason(ratelimitd, connect, redis):
    daemon = ratelimitd(FIRST + POLICIES.replace("deadline: 5s", "deadline: 5s, on_failure: deny"), redis=redis)
    client = connect(daemon)
    eventually(lambda: client.call("stats")["redis_up"] == 1, "Redis is there")
    client.check("login", "alice")
    client.check("login", "alice")
    redis.stop()
    eventually(lambda: client.call("stats")["redis_up"] == 0, "Redis is gone")
    client.check("login", "bob")
    lines = [words(line) for line in denials_at_end(daemon)]
    assert [(line["key"], line["source"], line.get("reason"), line.get("limit")) for line in lines] == [
        ("alice", "redis", None, "login"), ("bob", "deny", "down", None)]


# How many lines

@pytest.mark.parametrize("denied", [3, 200])
def test_lines_and_suppressed_ones_add_up_to_the_denials(served, denied):
    daemon, client = served(log(denials="sampled", denials_per_second=3))

    def reported():
        lines = denials(daemon)
        held = sum(int(n) for line in lines for n in re.findall(r"(\d+) held back", line))
        return held + sum("policy" in line for line in lines)

    for number in range(denied):
        client.check("never", f"key-{number}")
    eventually(lambda: reported() == denied, "the log reports all, without another denial")


def test_a_reload_turns_the_log_of_denials_on_and_off(served):
    daemon, client = served("")

    def reload(settings):
        before = client.call("stats")["reloads"]
        daemon.configure(settings + POLICIES)
        daemon.reload()
        eventually(lambda: client.call("stats")["reloads"] == before + 1, "it was reloaded")

    client.check("never", "before")
    reload(FIRST)
    client.check("never", "logged")
    reload("")
    client.check("never", "after")
    assert [words(line)["key"] for line in denials_at_end(daemon)] == ["logged"]


# Keys

def key_in_log(daemon, client, key):
    client.check("never", key)
    daemon.wait_for_log("denied: ")
    return words(denials(daemon)[0]).get("key")


def test_a_key_is_hashed_by_default_and_with_a_secret_of_its_own_in_each_daemon(served):
    hashes = [key_in_log(*served(log(denials="first")), "alice") for _ in range(2)]
    assert all(re.fullmatch("#[0-9a-f]{12}", text) for text in hashes)
    assert hashes[0] != hashes[1]


def test_a_secret_file_gives_the_same_hash_everywhere(served, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("a long random line\n")
    secret.chmod(0o600)
    settings = log(denials="first") + f"keys: {{secret_file: {secret}}}\n"
    started = [served(settings) for _ in range(2)]
    hashes = [key_in_log(*one, "alice") for one in started]
    assert hashes[0] == hashes[1] and re.fullmatch("#[0-9a-f]{12}", hashes[0])

    secret.write_text("another\n")
    daemon, client = started[0]
    daemon.reload()
    eventually(lambda: client.call("stats")["reloads"] == 1, "it was reloaded")
    client.check("other", "alice")
    client.check("other", "alice")
    line = eventually(lambda: [line for line in denials(daemon) if "policy other" in line], "the next denial")[0]
    assert words(line)["key"] != hashes[0]
    assert not any("random" in one.text() or "alice" in one.text() for one, _ in started)


def test_a_key_may_be_left_out(served):
    assert key_in_log(*served(log(denials="first") + "keys: {in_log: none}\n"), "alice") is None


def test_a_clear_key_cannot_pretend_to_be_more_than_a_key(served):
    key = key_in_log(*served(FIRST), "a cost 9 retry never\nratelimitd: error: gone")
    assert key == r"a\x20cost\x209\x20retry\x20never\x0aratelimitd:\x20error:\x20gone"
