"""test_ctl_output.py: output for people: tables, limits in words, unchanged keys, and useful advice."""

import grp
import json
import os
import shutil
import socket
import subprocess

import msgpack
import pytest

from harness import DENIED, DONE, PATIENCE_S, REFUSED, ROOT, UNREACHABLE, program, short_directory
from test_ctl import Fake

CONFIG = """policies:
  login: {algorithm: fixed_window, limit: 10, window: 10s}
  search:
    limits:
      - {name: minute, algorithm: token_bucket, limit: 2, window: 1m}
      - {name: day, algorithm: calendar_window, limit: 3, window: day, timezone: Europe/Berlin}
    overrides: [{match: "pä*", unlimited: true}]
  tenant:
    key_format: "{tenant}:{user}"
    limits: [{name: all, by: [tenant], algorithm: sliding_log, limit: 5, window: 1h, count_denied: true}]
    on_failure: deny
    candidate: [{name: less, by: [], algorithm: leaky_bucket, limit: 2, window: 1s, burst: 5, max_wait: 3s}]
  tried: {algorithm: fixed_window, start: first_hit, limit: 0, window: 1d, shadow: true}
  jobs: {algorithm: concurrency, limit: 2}
  free: {unlimited: true}
"""


@pytest.fixture
def daemon(ratelimitd):
    """Its clock stands at 2 s, so a window of 10 s ends in 8 s."""
    started = ratelimitd(CONFIG, arguments=["--test-clock"])
    started.ctl("test-clock", 2_000_000)
    return started


# ---- decisions ----------------------------------------------------------------------------------------------------


def test_at_most_prints_how_many_were_granted(daemon):
    daemon.ctl("check", "login", "a", 8)
    done = daemon.ctl("check", "--at-most", 3, "login", "a")
    assert (done.returncode, done.stdout) == (DONE, "allowed  granted 2, remaining 0/10, resets in 8s  [memory]\n")
    done = daemon.ctl("check", "--at-most", 3, "login", "a")
    assert (done.returncode, done.stdout) == (DENIED, "denied  remaining 0/10, retry in 8s  [memory]\n")


def test_a_cost_above_the_limit_is_named_by_every_command(daemon):
    never = "cost 11 exceeds the limit of 10: never allowed  [memory]"
    assert daemon.ctl("check", "login", "a", 11).stdout == f"denied  {never}\n"
    assert daemon.ctl("peek", "login", "a", 11).stdout == f"denied  {never}\n"
    assert daemon.ctl("reserve", "login", "a", 11).stdout == f"denied  {never}\n"
    assert daemon.ctl("explain", "login", "a", 11).stdout.splitlines()[0] == f"would be denied  {never}"
    assert daemon.ctl("check-many", "login", "a", ",", "login", "a", 11).stdout.splitlines()[1] == f"checks[1]  denied  {never}"
    assert daemon.ctl("check-all", "login", "b", 11, ",", "free", "a").stdout.splitlines()[1] == f"  checks[0]  denied  {never}"
    assert daemon.ctl("check", "search", "a", 3).stdout == (
        "denied  cost 3 exceeds the limit of 2 (search/minute): never allowed  [memory]\n")


def test_a_denial_of_several_limits_names_the_limit_of_its_number(daemon):
    daemon.ctl("check", "search", "a", 2)
    done = daemon.ctl("check", "search", "a")
    assert (done.returncode, done.stdout) == (DENIED, "denied  remaining 0/2 (search/minute), retry in 30s  [memory]\n")


def test_an_allowed_check_of_several_limits_names_the_limit_of_its_number(daemon):
    """The time is that of the same limit: the day ends later."""
    minute = "remaining 1/2 (search/minute), resets in 30s  [memory]"
    assert daemon.ctl("peek", "search", "a", 1).stdout == f"allowed  {minute}\n"
    assert daemon.ctl("check", "search", "a").stdout == f"allowed  {minute}\n"
    assert daemon.ctl("check", "--at-most", 1, "search", "b").stdout == f"allowed  granted 1, {minute}\n"
    assert daemon.ctl("check", "--wait", "search", "c").stdout == f"allowed  {minute}\n"
    assert daemon.ctl("reserve", "search", "d", 1).stdout.startswith(f"allowed  {minute}\n")
    assert daemon.ctl("check", "search", "e", 2).returncode == DONE
    assert daemon.ctl("refund", "search", "e", 1).stdout == f"refunded 1  {minute}\n"
    assert daemon.ctl("refund", "search/day", "e", 1).stdout.startswith("refunded 1  remaining 3/3 (search/day)  [memory]")
    assert daemon.ctl("check-many", "search", "f", ",", "login", "f").stdout.splitlines() == [
        f"checks[0]  allowed  {minute}", "checks[1]  allowed  remaining 9/10, resets in 8s  [memory]"]
    daemon.ctl("test-clock", 62_000_000)
    assert daemon.ctl("check", "search", "a", 2).stdout.startswith("allowed  remaining 0/2 (search/minute), resets in 1m")
    daemon.ctl("test-clock", 122_000_000)
    assert daemon.ctl("peek", "search", "a").stdout.startswith("allowed  remaining 0/3 (search/day), resets in ")


def test_the_only_limit_of_a_policy_is_not_named(daemon):
    assert daemon.ctl("check", "login", "a").stdout == "allowed  remaining 9/10, resets in 8s  [memory]\n"
    assert daemon.ctl("acquire", "jobs", "a").stdout.startswith("allowed  remaining 1/2  [memory]\n")


def test_with_several_policies_the_number_names_its_policy(daemon):
    assert daemon.ctl("check-all", "login", "a", ",", "free", "a").stdout.splitlines() == [
        "allowed  remaining 9/10 (login), resets in 8s  [memory]",
        "  checks[0]  allowed  remaining 9/10, resets in 8s  [memory]",
        "  checks[1]  allowed  unlimited  [unlimited]"]


def test_json_has_the_limit_its_quota_and_its_window(daemon):
    shown = json.loads(daemon.ctl("--json", "check", "search", "a").stdout)
    assert {name: shown[name] for name in ("of", "quota", "window_ms", "of_reset_ms")} == {
        "of": "search/minute", "quota": 2, "window_ms": 60_000, "of_reset_ms": 30_000}


def test_an_older_daemon_is_understood_and_its_limits_are_not_named():
    answer = {"allowed": True, "limit": 2, "remaining": 1, "retry_after_ms": 0, "reset_after_ms": 1000, "source": "memory",
              "policy_version": 1}
    with Fake(lambda msgid: msgpack.packb([1, msgid, None, answer]), refused="BAD_REQUEST: there is no option 'describe'") as fake:
        assert ctl(fake.path, "check", "search", "a") == (DONE, "allowed  remaining 1/2, resets in 1s  [memory]\n", "")
    with Fake(lambda msgid: msgpack.packb([1, msgid, None, answer]), refused="BAD_REQUEST: there is no option 'describe'") as fake:
        assert json.loads(ctl(fake.path, "--json", "check", "search", "a")[1]) == answer


def test_a_denied_slot_has_no_retry_time(daemon):
    """Earlier it printed `retry in 30s`, although the holders may stay for hours."""
    inner = [program("ratelimitctl"), "-s", daemon.socket, "acquire", "jobs", "a"]
    done = daemon.ctl("acquire", "jobs", "a", "--", *inner, "--", *inner)
    assert (done.returncode, done.stdout) == (
        DENIED, "denied  0 of 2 slots free; acquire --wait waits for one  [memory]\n")


# ---- explain ------------------------------------------------------------------------------------------------------


def test_explain_prints_the_decision_and_omits_defaults(daemon):
    assert daemon.ctl("explain", "login", "a").stdout.splitlines() == [
        "would be allowed, leaving 9 of 10  [memory]",
        "why       Allowed by the policy's limit (fixed_window, 10 per 10s): 10 of 10 units are free and this check needs 1.",
        "policy    login",
        "limit     allows  fixed_window, 10 per 10s",
        "  state   count 0, window ends in 8s",
        f"  key     {json.loads(daemon.ctl('--json', 'explain', 'login', 'a').stdout)['store_keys'][0]}",
    ]
    lines = daemon.ctl("explain", "search", "a").stdout.splitlines()
    assert lines[0] == "would be allowed, leaving 1 of 2 (search/minute)  [memory]"
    assert "limit     day  allows  calendar_window, 3 per day of Europe/Berlin" in lines
    assert daemon.ctl("explain", "free", "a").stdout.startswith("would be allowed  [unlimited]\n")


def test_explain_of_a_denial_names_the_limit_and_the_time(daemon):
    daemon.ctl("check", "search", "a", 2)
    done = daemon.ctl("explain", "search", "a")
    assert done.returncode == DENIED
    assert done.stdout.splitlines()[0] == "would be denied  remaining 0/2 (search/minute), retry in 30s  [memory]"
    assert "  state   tokens 0, full in 1m" in done.stdout.splitlines()


# ---- tables -------------------------------------------------------------------------------------------------------


def test_policies_are_a_table(daemon):
    daemon.ctl("check", "login", "a", 10)
    daemon.ctl("check", "login", "a")
    daemon.ctl("check", "tried", "a")
    assert daemon.ctl("policies").stdout == """\
POLICY  LIMITS                                                      ON FAILURE  ALLOWED  DENIED
free    unlimited                                                   local             0       0
jobs    concurrency, 2 at once                                      local             0       0
login   fixed_window, 10 per 10s                                    local             1       1
search  minute: token_bucket, 2 per 1m                              local             0       0
        day: calendar_window, 3 per day of Europe/Berlin
  match  pä*  unlimited
tenant  all: sliding_log, 5 per 1h, denied checks count, by tenant  deny              0       0
  keys   {tenant}:{user}
  candidate  less: leaky_bucket, 2 per 1s, burst 5, max wait 3s, one counter for all keys
  candidate  would have allowed 0, 0 of them were denied; denied 0, 0 of them were allowed
tried   fixed_window from the first hit, 0 per 1d                   local             1       0
  shadow denies nobody; would have denied 1
"""


def test_stats_are_short_and_complete_on_demand(daemon, connect):
    daemon.ctl("check", "login", "a", 11)
    assert daemon.ctl("stats").stdout == """\
checks           1
denied           1
failure answers  0
redis            not used: memory store
connections      1
"""
    shown = dict(line.split() for line in daemon.ctl("stats", "--all").stdout.splitlines())
    assert shown.keys() == connect(daemon).call("stats").keys() == json.loads(daemon.ctl("--json", "stats").stdout).keys()


def test_stats_show_the_state_of_redis_and_the_failures(ratelimitd):
    daemon = ratelimitd("store: {type: redis, redis: {addresses: ['unix:/nonexistent/redis.sock']}}\n"
                        "policies: {p: {algorithm: fixed_window, limit: 5, window: 1d}}\n")
    daemon.ctl("check", "p", "a")
    lines = daemon.ctl("stats").stdout.splitlines()
    assert lines[2] == "failure answers  1  (down 1)"
    assert lines[3].startswith("redis            down for ") and lines[3].endswith(" attempts to connect failed")


# ---- bytes --------------------------------------------------------------------------------------------------------

KEYS = [("\u00e4\u20ac\U0001f600", "\u00e4\u20ac\U0001f600"), ("a\\b", "a\\x5cb"), ("\x1b[31m", "\\x1b[31m"), ("\x7f", "\\x7f"),
        ("\u009b1m", "\\xc2\\x9b1m"), ("\udcff\udcfe", "\\xff\\xfe"), ("\udced\udca0\udc80", "\\xed\\xa0\\x80")]


def ctl(path, *arguments, **options):
    done = subprocess.run([program("ratelimitctl"), "-s", path, *arguments], capture_output=True, stdin=subprocess.DEVNULL,
                          timeout=PATIENCE_S, **options)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize("key, shown", KEYS)
def test_a_key_is_printed_as_it_is_or_escaped_once(daemon, key, shown):
    """Earlier the daemon's \\xc3\\xa4 was printed as \\x5cxc3\\x5cxa4."""
    raw = key.encode("utf-8", "surrogateescape")
    status, out, _ = ctl(daemon.socket, "explain", "login", raw)
    assert status == DONE and out.endswith(f":login:{shown}\n")
    status, _, err = ctl(daemon.socket, "check", "tenant", raw)
    assert status == REFUSED and err == f"ratelimitctl: BAD_KEY: key: '{shown}' does not fit {{tenant}}:{{user}}, the key_format of tenant\n"


def test_an_override_is_printed_as_it_is(daemon):
    assert "  match  pä*  unlimited" in daemon.ctl("policies").stdout.splitlines()
    out = daemon.ctl("explain", "search", "pä1").stdout
    assert "override  pä*\n" in out and "The override pä* counts for this key." in out


def test_what_a_daemon_sends_cannot_write_to_the_terminal():
    policy = b"p\x1b\xc2\x9b"
    answer = [{"name": policy, "on_failure": policy, "limits": [{"algorithm": policy, "limit": 1, "window_ms": 5, policy: policy}],
               "overrides": 1, "override_list": [{"key": policy, "limits": [{"name": policy, "limit": 1}]}]}]
    with Fake(lambda msgid: msgpack.packb([1, msgid, None, answer])) as fake:
        status, out, _ = ctl(fake.path, "policies")
    assert status == DONE and "\x1b" not in out and "\u009b" not in out and "p\\x1b\\xc2\\x9b" in out


# ---- no permission ------------------------------------------------------------------------------------------------


@pytest.fixture
def closed():
    """A socket that this user may not write to, in its own directory, and the means to run as that user."""
    directory = short_directory()
    os.chmod(directory, 0o755)
    path = str(directory / "rl.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(1)
        yield path
    shutil.rmtree(directory)


def as_nobody():
    if os.geteuid() != 0:
        return {}
    return {"user": 65534, "group": 65534, "extra_groups": []}


def group_of(path):
    gid = os.stat(path).st_gid
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def give_away(path):
    """To a group that one may join: nobody is advised to join root's."""
    if os.geteuid() == 0:
        os.chown(path, -1, 12345)


def test_a_socket_of_another_group_names_the_group(closed):
    """Earlier the message asked whether the daemon was running."""
    give_away(closed)
    os.chmod(closed, 0o660 if os.geteuid() == 0 else 0o060)
    status, out, err = ctl(closed, "ping", **as_nobody())
    mode = "0660" if os.geteuid() == 0 else "0060"
    assert (status, out) == (UNREACHABLE, "")
    assert err == (f"ratelimitctl: cannot connect to {closed}: permission denied; it belongs to group {group_of(closed)}, "
                   f"mode {mode}: add this user to the group and log in again\n")


def test_a_socket_without_group_access_names_the_setting(closed):
    os.chmod(closed, 0o600 if os.geteuid() == 0 else 0)
    status, _, err = ctl(closed, "ping", **as_nobody())
    assert status == UNREACHABLE and "which gives the group no access: set listen.group and listen.mode" in err


def test_a_directory_that_is_closed_is_named(closed):
    directory = os.path.dirname(closed)
    give_away(directory)
    os.chmod(directory, 0o750 if os.geteuid() == 0 else 0o050)
    status, _, err = ctl(closed, "ping", **as_nobody())
    os.chmod(directory, 0o755)
    assert status == UNREACHABLE
    assert f"permission denied; the directory {directory} belongs to group " in err and "add this user to the group" in err


# ---- completion ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell, check", [("bash", ["-n"]), ("zsh", ["-n"]), ("fish", ["--no-execute"])])
def test_the_completions_can_be_read_by_their_shells(shell, check):
    if not shutil.which(shell):
        pytest.skip(f"no {shell} here")
    done = subprocess.run([shell, *check, str(ROOT / "src" / "ctl" / f"ratelimitctl.{shell}")], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_completions_list_policies_as_the_table_shows_them(daemon):
    """They all read the first column of `policies`."""
    command = next(line.strip() for line in (ROOT / "src/ctl/ratelimitctl.fish").read_text().splitlines() if "sed -n" in line)
    pipe = command.replace("$socket", f"-s {daemon.socket}")
    done = subprocess.run(["sh", "-c", pipe], capture_output=True, text=True, timeout=PATIENCE_S,
                          env={**os.environ, "PATH": f"{os.path.dirname(program('ratelimitctl'))}:{os.environ['PATH']}"})
    assert done.stdout.split() == ["free", "jobs", "login", "search", "tenant", "tried"]
    for shell in ("bash", "zsh"):
        assert command.split("| ")[1] in (ROOT / f"src/ctl/ratelimitctl.{shell}").read_text()


def test_help_is_grouped_by_purpose():
    out = subprocess.run([program("ratelimitctl"), "--help"], capture_output=True, text=True).stdout
    headings = [line for line in out.splitlines() if line.endswith(":") and line[0].isupper()]
    assert headings == ["Charge:", "Charge an estimate, and correct it later:", "Limit what runs at the same time:",
                        "Show; nothing is charged:", "Who is limited, since when, by whom; for operators:", "The daemon:", "Tests:",
                        "Options of every command:", "Options of some:"]
    assert max(map(len, out.splitlines())) <= 120
