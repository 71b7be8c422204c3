"""test_calendar.py: windows of the calendar through the socket: answers, shared counts, and their descriptions."""

import datetime
import subprocess
import sys
from pathlib import Path

import pytest
from harness import RpcError, program

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "model"))

import calendars  # noqa: E402

POLICIES = """
defaults: {deadline: 5s}  # Redis is slow on a busy machine
policies:
  hour: {algorithm: calendar_window, limit: 5, window: hour, timezone: Asia/Kolkata}
  day: {algorithm: calendar_window, limit: 3, window: day, timezone: Europe/Berlin}
  week: {algorithm: calendar_window, limit: 5, window: week, week_start: sunday}
  both:
    limits:
      - {name: second, algorithm: gcra, limit: 10, window: 1s}
      - {name: month, algorithm: calendar_window, limit: 2, window: month, timezone: America/New_York}
"""


def us(text):
    return int(datetime.datetime.fromisoformat(text + "+00:00").timestamp()) * 1_000_000


def test_a_day_ends_at_midnight_in_its_zone(ratelimitd, connect):
    client = connect(ratelimitd(POLICIES, arguments=["--test-clock"]))
    client.call("test_clock", us("2024-03-31T00:59:00"))  # the clocks jump in a minute; the day has 23 hours
    first = client.check("day", "alice", 3)
    assert (first["allowed"], first["remaining"], first["reset_after_ms"]) == (True, 0, 21 * 3_600_000 + 60_000)
    client.call("test_clock", us("2024-03-31T21:59:59"))
    denied = client.check("day", "alice")
    assert (denied["allowed"], denied["retry_after_ms"]) == (False, 1000)
    client.call("test_clock", us("2024-03-31T22:00:00"))
    assert client.check("day", "alice")["remaining"] == 2


@pytest.mark.parametrize("policy, calendar", [
    ("hour", ("hour", "Asia/Kolkata", 0)), ("day", ("day", "Europe/Berlin", 0)), ("week", ("week", "UTC", 6)),
    ("both", ("month", "America/New_York", 0))])
def test_on_redis_a_window_ends_by_the_servers_clock(redis, ratelimitd, connect, policy, calendar):
    client = connect(ratelimitd(POLICIES, redis=redis))
    with redis.client() as server:
        before = server.time()
        answer = client.check(policy, "carol", 2)
        after = server.time()
    before, after = (seconds * 1000 + micros // 1000 for seconds, micros in (before, after))
    assert answer["allowed"] and answer["source"] == "redis"
    ends = {calendars.end_us(*calendar, now * 1000) // 1000 for now in (before, after)}
    assert any(before + answer["reset_after_ms"] <= end <= after + answer["reset_after_ms"] for end in ends)


def test_several_daemons_count_one_month(redis, ratelimitd, connect):
    clients = [connect(ratelimitd(POLICIES, redis=redis)) for _ in range(2)]
    allowed = [clients[n % 2].check("both", "dave") for n in range(3)]
    if len({answer["reset_after_ms"] // 86_400_000 for answer in allowed}) > 1:
        pytest.skip("the month ended in between")
    assert [answer["allowed"] for answer in allowed] == [True, True, False]
    assert allowed[2]["bound_by"] == "both/month"


def test_policies_describes_the_calendar(ratelimitd, connect):
    client = connect(ratelimitd(POLICIES))
    limits = {policy["name"]: policy["limits"] for policy in client.call("policies")}
    assert limits["day"] == [{"algorithm": "calendar_window", "limit": 3, "window": "day", "timezone": "Europe/Berlin"}]
    assert limits["week"] == [{"algorithm": "calendar_window", "limit": 5, "window": "week", "timezone": "UTC",
                               "week_start": "sunday"}]
    assert limits["both"][1]["timezone"] == "America/New_York"


def test_a_zone_that_is_not_installed_is_named_with_its_line(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("policies:\n  day:\n    algorithm: calendar_window\n    limit: 3\n    window: day\n    timezone: Europe/Belrin\n")
    done = subprocess.run([program("ratelimitd"), "--check-config", "-c", str(path)], capture_output=True, text=True,
                          timeout=30)
    assert done.returncode == 3
    assert done.stderr == f"{path}:6: policies.day.timezone: 'Europe/Belrin' is not known; did you mean Europe/Berlin?\n"


def test_without_tzdata_the_message_names_the_package(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("policies:\n  day: {algorithm: calendar_window, limit: 3, window: day, timezone: Europe/Berlin}\n"
                    "  utc: {algorithm: calendar_window, limit: 3, window: day}\n")
    done = subprocess.run([program("ratelimitd"), "--check-config", "-c", str(path)], capture_output=True, text=True,
                          timeout=30, env={"TZDIR": str(tmp_path)})
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1 and f"{path}:2: policies.day.timezone: 'Europe/Berlin' is not among" in done.stderr
    assert "install tzdata" in done.stderr


def test_printed_settings_are_complete(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(POLICIES)
    done = subprocess.run([program("ratelimitd"), "--print-config", "-c", str(path)], capture_output=True, text=True,
                          timeout=30)
    assert done.returncode == 0
    for line in ("    window: hour", "    timezone: Asia/Kolkata", "    week_start: sunday", "        window: month"):
        assert line + "\n" in done.stdout


ANCHORED = """
defaults: {deadline: 5s}
inline: {allow: true}
policies:
  quota:
    limits:
      - {name: month, algorithm: calendar_window, limit: 3, window: month, timezone: Europe/Berlin, anchor: 2026-01-31}
      - {name: year, algorithm: calendar_window, limit: 9, window: year, anchor: 2024-02-29}
    overrides: [{key: early, anchor: {month: 1999-12-15}}]
"""


def test_a_month_begins_on_the_anchor_s_day_or_its_last_one(ratelimitd, connect):
    client = connect(ratelimitd(ANCHORED, arguments=["--test-clock"]))
    for begins, ends in (("2026-02-27T23:00:00", "2026-03-30T22:00:00"), ("2026-03-30T22:00:00", "2026-04-29T22:00:00"),
                         ("2026-04-29T22:00:00", "2026-05-30T22:00:00")):
        client.call("test_clock", us(begins))
        assert client.check("quota", "bob", 3)["remaining"] == 0
        client.call("test_clock", us(ends) - 1_000_000)
        assert client.check("quota", "bob")["retry_after_ms"] == 1000
    client.call("test_clock", us("2026-05-14T21:59:59"))
    assert client.check("quota", "early", 3)["reset_after_ms"] > 1000
    client.call("test_clock", us("2026-05-14T22:00:00"))
    assert client.check("quota", "early", 3)["allowed"]


def test_the_anchor_is_described_and_comes_with_a_request(ratelimitd, connect):
    client = connect(ratelimitd(ANCHORED))
    (policy,) = client.call("policies")
    assert [limit["anchor"] for limit in policy["limits"]] == ["2026-01-31", "2024-02-29"]
    assert policy["override_list"] == [{"key": "early", "limits": [{"name": "month", "anchor": "1999-12-15"}]}]
    explained = client.call("explain", "quota", "early")
    assert [limit["anchor"] for limit in explained["limits"]] == ["1999-12-15", "2024-02-29"]
    inline = {"algorithm": "calendar_window", "limit": 3, "window": "month", "anchor": "2026-01-31"}
    assert client.check(inline, "bob")["remaining"] == 2
    with pytest.raises(RpcError, match="BAD_REQUEST: .*anchor: '2026-02-31' is no day of the calendar"):
        client.check({**inline, "anchor": "2026-02-31"}, "bob")


def test_an_hour_shown_twice_is_two_windows(ratelimitd, connect):
    client = connect(ratelimitd("policies:\n  hour: {algorithm: calendar_window, limit: 5, window: hour, timezone: Europe/Berlin}\n"
                                "  half: {algorithm: calendar_window, limit: 5, window: hour, timezone: Australia/Lord_Howe}\n",
                                arguments=["--test-clock"]))
    for at, policy, reset_s in (("2026-04-04T14:10:00", "half", 50 * 60), ("2026-04-04T15:00:00", "half", 30 * 60),
                                ("2026-04-04T15:30:00", "half", 3600), ("2026-10-25T00:30:00", "hour", 30 * 60),
                                ("2026-10-25T01:00:00", "hour", 3600), ("2026-10-25T02:00:00", "hour", 3600)):
        client.call("test_clock", us(at))
        answer = client.check(policy, "bob")
        assert (answer["remaining"], answer["reset_after_ms"]) == (4, reset_s * 1000)


def test_a_reload_may_change_the_zone(ratelimitd, connect):
    daemon = ratelimitd(POLICIES, arguments=["--test-clock"])
    client = connect(daemon)
    client.call("test_clock", us("2024-01-15T12:00:00"))
    assert client.check("day", "erin")["reset_after_ms"] == 11 * 3_600_000  # 23:00 UTC
    version = client.check("day", "erin")["policy_version"]
    daemon.configure(POLICIES.replace("Europe/Berlin", "America/New_York"))
    daemon.reload()
    daemon.wait_for_log("reload: .* read again, 4 policies")
    answer = client.check("day", "erin")
    assert answer["policy_version"] != version
    # Berlin's midnight is nearer: its count runs out first.
    assert (answer["remaining"], answer["reset_after_ms"]) == (0, 11 * 3_600_000)
    client.call("test_clock", us("2024-01-15T23:00:00"))
    assert client.check("day", "erin")["reset_after_ms"] == 6 * 3_600_000


def test_an_inline_policy_has_the_zones_of_the_configuration(ratelimitd, connect):
    client = connect(ratelimitd(POLICIES + "inline: {allow: true}\n", arguments=["--test-clock"]))
    client.call("test_clock", us("2024-01-15T12:00:00"))
    settings = {"algorithm": "calendar_window", "limit": 5, "window": "year"}
    assert client.check(settings, "k")["remaining"] == 4
    assert client.check({**settings, "timezone": "Europe/Berlin", "window": "hour"}, "k")["reset_after_ms"] == 3_600_000
    with pytest.raises(RpcError, match="BAD_REQUEST.*policy.timezone: 'Asia/Tokyo' is not open; write UTC"):
        client.check({**settings, "timezone": "Asia/Tokyo"}, "k")
