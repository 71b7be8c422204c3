"""test_near.py: warn_at: what is reported before a limit is used up. The model judges it in every trace (at_socket.py)."""

import re
import subprocess

import pytest

from harness import eventually, program
from http_client import ADMIN
from http_metrics import metrics

POLICIES = """policies:
  ten: {algorithm: fixed_window, limit: 10, window: 1d, warn_at: 80%}
  all: {algorithm: fixed_window, limit: 2, window: 1d, warn_at: 100%}
  some: {algorithm: fixed_window, limit: 3, window: 1d, warn_at: 1%}
  quiet: {algorithm: fixed_window, limit: 10, window: 1d}
  tried: {algorithm: fixed_window, limit: 2, window: 1d, warn_at: 50%, shadow: true}
  never: {algorithm: fixed_window, limit: 0, window: 1d, warn_at: 1%}
  both:
    warn_at: 50%
    limits:
      - {name: minute, algorithm: fixed_window, limit: 2, window: 1d}
      - {name: day, algorithm: sliding_log, limit: 100, window: 1d}
"""


def near(answer):
    assert answer.get("near") in (None, True)  # left out otherwise
    return answer.get("near", False)


@pytest.fixture
def served(ratelimitd, connect):
    def start(settings="", **options):
        daemon = ratelimitd(settings + POLICIES, **options)
        return daemon, connect(daemon)

    return start


def test_more_than_that_part_is_near_allowed_denied_or_peeked(served):
    _, client = served("defaults: {deadline: 5s}\n")
    assert [near(client.check("ten", "k")) for _ in range(11)] == [False] * 8 + [True] * 3
    assert near(client.call("peek", "ten", "k")) and near(client.call("explain", "ten", "k"))
    assert not near(client.call("peek", "ten", "other"))
    assert not any(near(client.check("all", "k")) for _ in range(4))  # more than all is never used
    assert [near(client.check("some", "k")) for _ in range(4)] == [True] * 4
    assert not any(near(client.check("quiet", "k")) for _ in range(12))
    assert not near(client.check("never", "k"))


def test_of_several_limits_one_is_enough(served):
    _, client = served()
    assert [near(client.check("both", "k")) for _ in range(3)] == [False, True, True]
    answer = client.call("check_all", [["both", "k", 0], ["quiet", "k"]])
    assert near(answer) and [near(member) for member in answer["members"]] == [True, False]
    answer = client.call("check_all", [["both", "x", 0], ["quiet", "k"]])
    assert not near(answer) and not any(near(member) for member in answer["members"])
    assert [near(one) for one in client.call("check_many", [["both", "y"]] * 3)] == [False, True, True]


def test_a_shadow_policy_is_near_too(served):
    _, client = served()
    answers = [client.check("tried", "k") for _ in range(3)]
    assert [near(answer) for answer in answers] == [False, True, True] and answers[2]["shadow_denied"]


def test_in_an_array_it_is_in_the_map_behind_the_values(served):
    _, client = served()
    client.call("hello", {"decision": "array"})
    assert client.check("some", "k")[-1] == {"near": True}
    assert not isinstance(client.check("quiet", "k")[-1], dict)


def test_on_redis_and_from_the_deny_cache(served, redis):
    _, client = served(redis=redis)
    answers = [client.check("ten", "k") for _ in range(13)]
    assert [near(answer) for answer in answers] == [False] * 8 + [True] * 5
    assert answers[-1]["source"] in ("redis", "deny_cache")


def test_inline_policies_may_set_it(served):
    _, client = served("inline: {allow: true}\n")
    policy = {"algorithm": "fixed_window", "limit": 2, "window": "1d", "warn_at": "50%"}
    assert [near(client.check(policy, "k")) for _ in range(3)] == [False, True, True]


def test_the_local_answer_goes_by_its_share(served):
    _, client = served("store: {type: redis, redis: {addresses: [\"127.0.0.1:1\"]}}\ndefaults: {local_share: 2, on_failure: local}\n")
    answers = [client.check("ten", "k") for _ in range(6)]
    assert answers[0]["source"] == "local" and answers[0]["limit"] == 5
    assert [near(answer) for answer in answers] == [False] * 4 + [True] * 2


def test_the_metrics_follow_it(served):
    daemon, client = served(ADMIN)
    for _ in range(12):
        client.check("ten", "k")
        client.check("quiet", "k")
    page = metrics(daemon)
    assert page.value("ratelimitd_near_limit_total", policy="ten") == 2  # the ninth and tenth
    assert page.value("ratelimitd_near_limit_total", policy="quiet") == 2  # less than a fifth left
    client.check("some", "k")
    assert {row["policy"]: row["near"] for row in client.call("top")["policies"]}["some"] == 1


def lines(daemon):
    return [line.split("near: ", 1)[1] for line in daemon.text().split("\n") if "near: " in line]


def test_the_log_has_one_line_of_a_key(served):
    daemon, client = served()
    for _ in range(12):
        client.check("ten", "secret-key")
    for _ in range(3):
        client.check("both", "other-key")
        client.check("quiet", "third-key")
    eventually(lambda: len(lines(daemon)) >= 2, "lines of the log")
    daemon.stop()
    found = lines(daemon)
    assert len(found) == 2
    assert re.fullmatch(r"policy ten limit ten key #[0-9a-f]{12} used 9 of 10 source memory uid \d+ pid \d+", found[0])
    assert re.fullmatch(r"policy both limit both/minute key #[0-9a-f]{12} used 2 of 2 source memory uid \d+ pid \d+", found[1])
    assert "secret-key" not in daemon.text()


def test_a_flood_of_keys_is_paced(served):
    daemon, client = served()
    for i in range(20):
        client.call("check_many", [["some", f"{i}-{j}"] for j in range(100)])
    eventually(lambda: "held back" in daemon.text(), "how many were held back")
    assert len(lines(daemon)) <= 200


@pytest.mark.parametrize("value, error", [("80", "not a whole percentage"), ("0%", "too small; write 1% to 100%"),
                                          ("101%", "too large; write 1% to 100%"), ("80.5%", "not a whole percentage"), ("'%'", "not a whole percentage"), ("x", "not a whole percentage")])
def test_wrong_values_are_named(tmp_path, value, error):
    file = tmp_path / "x.yaml"
    file.write_text(f"policies:\n  p: {{algorithm: fixed_window, limit: 1, window: 1s, warn_at: {value}}}\n")
    done = subprocess.run([program("ratelimitd"), "-c", str(file), "--check-config"], capture_output=True, text=True, check=False)
    assert done.returncode == 3 and "policies.p.warn_at" in done.stderr and error in done.stderr


def test_it_is_among_the_settings(ratelimitd, connect):
    client = connect(ratelimitd(POLICIES))
    policies = {policy["name"]: policy for policy in client.call("policies")}
    assert policies["ten"]["warn_at"] == 80 and "warn_at" not in policies["quiet"]
    assert policies["ten"]["version"] != policies["quiet"]["version"]


def test_the_log_names_the_limit_of_a_local_answer_after_a_reload(served, redis):
    """Earlier the line was about a limit that an older check had been near, whose policy may be gone."""
    daemon, client = served("defaults: {deadline: 5s}\n", redis=redis)
    for key in ("a", "b", "c"):
        assert near(client.check("both", key, 2))
    daemon.configure("policies:\n  later:\n    warn_at: 50%\n    limits:\n"
                     "      - {name: hour, algorithm: fixed_window, limit: 100, window: 1d}\n"
                     "      - {name: minute, algorithm: fixed_window, limit: 2, window: 1d}\n")
    assert daemon.ctl("reload").returncode == 0
    redis.kill()
    daemon.wait_for_log("warning: Redis: ")
    answer = client.check("later", "k", 2)
    assert near(answer) and answer["source"] == "local"
    daemon.wait_for_log("near: policy later limit later/minute key #.* used 2 of 2 source local ")
