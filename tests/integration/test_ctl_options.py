"""test_ctl_options.py: the places for options of ratelimitctl, the meaning of `--`, and the accepted durations."""

import json
import subprocess

import pytest

from harness import DONE, PATIENCE_S, USAGE, program

CONFIG = """policies:
  fw: {algorithm: fixed_window, limit: 5, window: 1d, start: first_hit}
  -dash: {algorithm: fixed_window, limit: 5, window: 1d, start: first_hit}
  jobs: {algorithm: concurrency, limit: 2}
"""


@pytest.fixture
def daemon(ratelimitd):
    return ratelimitd(CONFIG)


def remaining(daemon, key):
    return json.loads(daemon.ctl("--json", "peek", "--", "fw", key).stdout)["remaining"]


@pytest.mark.parametrize("arguments", [
    ["--json", "--at-most", "2", "check", "fw", "a"], ["check", "--json", "--at-most", "2", "fw", "a"],
    ["--at-most=2", "check", "--json", "fw", "a"], ["check", "--json", "--at-most", "2", "--", "fw", "a"],
    ["--json", "--at-most", "2", "--", "check", "fw", "a"],
])
def test_options_stand_before_the_command_or_between_it_and_the_policy(daemon, arguments):
    assert json.loads(daemon.ctl(*arguments).stdout)["granted"] == 2


def test_the_socket_may_be_named_behind_the_command(daemon):
    done = subprocess.run([program("ratelimitctl"), "ping", "-s", daemon.socket], capture_output=True, text=True,
                          timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (DONE, "pong\n")
    assert json.loads(daemon.ctl("policies", "--json").stdout)["policies"][0]["name"] == "-dash"
    assert daemon.ctl("check", "--help").stdout.startswith("usage: ratelimitctl")


@pytest.mark.parametrize("key", ["-", "-x", "-s", "--json", "--wait", "--nonsense", "-5"])
def test_from_the_policy_on_everything_is_an_argument(daemon, key):
    assert daemon.ctl("check", "fw", key).returncode == DONE
    assert daemon.ctl("check", "fw", key, 2).returncode == DONE
    assert remaining(daemon, key) == 2
    assert daemon.ctl("check-all", "fw", "b", ",", "fw", key, 2).returncode == DONE


@pytest.mark.parametrize("arguments", [
    ["check", "fw", "--"], ["check", "fw", "--", "alice"], ["--json", "check", "fw", "--"], ["reset", "fw", "--"],
    ["check-all", "fw", "a", ",", "fw", "--"], ["check-all", "fw", "--", ",", "fw", "a"], ["acquire", "jobs", "--"],
    ["reserve", "fw", "--", 1],
])
def test_two_dashes_are_no_key(daemon, arguments):
    """Earlier they were accepted, and charged."""
    done = daemon.ctl(*arguments)
    assert done.returncode == USAGE
    assert json.loads(done.stdout)["error"] == "USAGE" if "--json" in arguments else done.stdout == ""
    assert done.stderr.startswith("ratelimitctl: KEY: a bare -- is not a key; ")
    assert remaining(daemon, "--") == 5 and remaining(daemon, "a") == 5


def test_two_dashes_before_the_policy_end_the_options(daemon):
    assert daemon.ctl("check", "--", "fw", "a").returncode == DONE
    assert daemon.ctl("check", "--", "-dash", "a").returncode == DONE
    assert daemon.ctl("check", "--", "fw", "--").returncode == DONE
    assert remaining(daemon, "--") == 4
    assert daemon.ctl("check", "-dash", "a").returncode == USAGE


@pytest.mark.parametrize("arguments, option, where", [
    (["check", "fw", "a", "--json"], "--json", "between check and POLICY"),
    (["check", "fw", "a", 1, "--json"], "--json", "between check and POLICY"),
    (["check", "fw", "a", "--timeout=5s"], "--timeout=5s", "between check and POLICY"),
    (["check", "fw", "a", "-s", "/x"], "-s", "between check and POLICY"),
    (["check", "fw", "--json", "alice"], "--json", "between check and POLICY"),
    (["reset", "fw", "a", "--json"], "--json", "between reset and POLICY"),
    (["check-all", "fw", "a", ",", "fw", "b", "--json"], "--json", "between check-all and POLICY"),
    (["acquire", "jobs", "a", "--wait", "--", "true"], "--wait", "between acquire and POLICY"),
    (["acquire", "jobs", "--wait", "a", "--", "true"], "--wait", "between acquire and POLICY"),
    (["settle", "x", 5, "--json"], "--json", "between settle and RESERVATION"),
    (["cancel", "x", "--json"], "--json", "between cancel and RESERVATION"),
])
def test_an_option_after_the_key_gets_a_message_with_its_place(daemon, arguments, option, where):
    done = daemon.ctl(*arguments)
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert done.stderr.startswith(f"ratelimitctl: {option} comes after ") and done.stderr.endswith(f"{where}\n")
    assert remaining(daemon, "a") == 5


def test_the_command_of_an_acquire_keeps_its_options(daemon):
    done = daemon.ctl("acquire", "jobs", "a", "--", "echo", "--json", "-s", "--", "--wait")
    assert (done.returncode, done.stdout) == (DONE, "--json -s -- --wait\n")
    assert daemon.ctl("acquire", "--", "jobs", "a", "--", "echo", "--").stdout == "--\n"


@pytest.mark.parametrize("option", ["--timeout", "--deadline", "--ttl", "--max-wait", "--wait"])
@pytest.mark.parametrize("duration", ["999us", "1us", "1500us", "10001us"])
def test_durations_are_whole_milliseconds(daemon, option, duration):
    """Earlier they were rounded up, or down to never."""
    command = ["reserve", "fw", "a", 1] if option == "--ttl" else ["check", "fw", "a"]
    done = daemon.ctl(f"{option}={duration}", *command)
    assert (done.returncode, done.stdout) == (USAGE, "") and done.stderr.startswith(f"ratelimitctl: {option} {duration}: ")
    assert daemon.ctl(f"{option}=2000ms", *command).returncode == DONE


def test_a_wrong_option_is_named_with_the_way_out(daemon):
    assert daemon.ctl("check", "--json=5", "fw", "a").stderr.startswith("ratelimitctl: --json=5: this option takes no value; ")
    for option in ("--nonsense", "-x", "--nonsense=5"):
        done = daemon.ctl("check", option, "fw", "a")
        assert done.returncode == USAGE and done.stderr.startswith(f"ratelimitctl: {option}: no such option")
    assert daemon.ctl("--timeout").stderr == "ratelimitctl: --timeout needs a value; try ratelimitctl --help\n"
    assert daemon.ctl("--wait", "5s", "check", "fw", "a").stderr == "ratelimitctl: 5s is not a command; did you mean --wait=5s?\n"
    for command in (["check", "--wait", "5s", "fw", "a"], ["acquire", "--wait", "5s", "jobs", "a", "--", "true"]):
        assert daemon.ctl(*command).stderr == "ratelimitctl: 5s is taken for POLICY; did you mean --wait=5s?\n"
    assert "COST: 'x' is not" in daemon.ctl("check", "--wait=5s", "5s", "a", "x").stderr
    assert daemon.ctl("check", "--all", "fw", "a").stderr == "ratelimitctl: check takes no --all; try ratelimitctl --help\n"


def test_an_empty_socket_in_the_environment_is_the_same_as_none(daemon):
    """Earlier it was a usage error."""
    done = subprocess.run([program("ratelimitctl"), "ping"], capture_output=True, text=True, timeout=PATIENCE_S,
                          env={"RATELIMIT_SOCKET": ""})
    assert done.returncode == DONE or "/run/ratelimitd/ratelimitd.sock" in done.stderr


@pytest.mark.parametrize("command", [["ping"], ["reload"], ["reload", "--dry-run"], ["config"]])
def test_an_empty_socket_behind_s_is_refused(daemon, command):
    """reload and config went to the default socket: `ratelimitctl -s "$UNSET" reload` reloaded another daemon."""
    done = daemon.ctl("-s", "", *command)
    assert done.returncode == USAGE and "is empty" in done.stderr
