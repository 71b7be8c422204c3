"""test_arguments.py: the command line of ratelimitd, and the environment and signals that a new user meets first."""

import os
import re
import signal

import pytest

from harness import run_ratelimitd

POLICY = "policies:\n  login: {algorithm: fixed_window, limit: 5, window: 1h}\n"


@pytest.fixture
def path(tmp_path):
    written = tmp_path / "ratelimitd.yaml"
    written.write_text(POLICY)
    return written


def test_the_long_names_of_options_are_taken_and_h_is_help(path):
    assert run_ratelimitd("--check-config", "--config", path) == (0, "the configuration is correct\n", "")
    assert run_ratelimitd("--check-config", f"--config={path}")[0] == 0
    assert run_ratelimitd("-h") == run_ratelimitd("--help")
    assert run_ratelimitd("-h")[0] == 0
    out = run_ratelimitd("--print-config", "--config", path, "--socket", "/elsewhere/rl.sock")[1]
    assert 'socket: "/elsewhere/rl.sock"' in out


@pytest.mark.parametrize("option, long", [("-c", "--config"), ("-s", "--socket")])
def test_an_option_that_is_given_twice_is_wrong_usage(path, option, long):
    """Earlier, the last one counted, without a message."""
    for second in (option, long):
        status, out, err = run_ratelimitd("--check-config", option, path, second, "/other")
        assert (status, out) == (2, "")
        assert err == f"ratelimitd: {option} is given twice: {path} and /other; give it once\n"


def test_print_config_shows_the_socket_that_would_be_listened_on(path):
    shown = run_ratelimitd("--print-config", "-c", path, "-s", "/elsewhere/rl.sock")[1]
    assert re.search(r"^listen:\n  socket: \"/elsewhere/rl\.sock\"$", shown, re.M)
    assert "/elsewhere" not in run_ratelimitd("--print-config", "-c", path)[1]


def test_sigusr1_is_ignored(ratelimitd):
    """Earlier, the default action of the signal ended the daemon."""
    daemon = ratelimitd(POLICY)
    for _ in range(3):
        os.kill(daemon.pid, signal.SIGUSR1)
    assert daemon.ctl("ping").stdout == "pong\n"


@pytest.mark.parametrize("text", ["policies: {}\n", "policies:\n"])
def test_a_daemon_without_policies_warns_once_at_start(ratelimitd, text):
    daemon = ratelimitd(text)
    warned = [line for line in daemon.log if "policies" in line and "ready on" not in line]
    assert len(warned) == 1
    assert f"warning: {daemon.path}: policies is empty: " in warned[0] and "UNKNOWN_POLICY" in warned[0]
    assert "UNKNOWN_POLICY" in daemon.ctl("check", "login", "alice").stderr


def test_a_daemon_for_inline_policies_alone_is_not_warned_of(ratelimitd):
    daemon = ratelimitd("inline: {allow: true}\npolicies: {}\n")
    assert not any("warning" in line for line in daemon.log)
