"""test_small_words.py: messages that once left a user without the way out, each as it was met."""

import os
import subprocess

import pytest
from harness import program, run_ratelimitd

POLICY = "policies:\n  login: {algorithm: fixed_window, limit: 5, window: 1d}\n"


def ctl(*arguments, socket="/nowhere"):
    done = subprocess.run([program("ratelimitctl"), "-s", socket, *arguments], capture_output=True, text=True, timeout=20,
                          stdin=subprocess.DEVNULL)
    return done.returncode, done.stderr


def checked(tmp_path, text):
    path = tmp_path / "ratelimitd.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    status, _, errors = run_ratelimitd("--check-config", "-c", str(path))
    return status, errors


@pytest.mark.parametrize("arguments, words", [
    (["acquire", "jobs", "a", "true"], "write -- before the command: ratelimitctl acquire jobs a -- true"),
    (["acquire", "jobs", "a", "--"], "COMMAND is missing behind --"),
    (["reload", "--dryrun"], "--dryrun: no such option; did you mean --dry-run?"),
    (["check", "login", "a", "--dedline=1s"], "COST: '--dedline=1s' is not a whole number"),
    (["--jsn", "ping"], "--jsn: no such option; did you mean --json?"),
    (["check", "login"], "KEY is missing"),
    (["refund", "login", "a"], "UNITS is missing"),
    (["ping", "now"], "'now' is one argument too many"),
    (["acquire", "--taken-exit", "256", "jobs", "a"], "--taken-exit 256: write an exit status, 0 to 255"),
])
def test_a_wrong_command_line_is_told_what_to_write(arguments, words):
    status, errors = ctl(*arguments)
    assert status == 2 and words in errors, errors


def test_acquire_exits_as_it_was_asked_to_where_no_slot_is_available(ratelimitd, connect):
    daemon = ratelimitd("policies:\n  jobs: {algorithm: concurrency, limit: 1}\n")
    assert connect(daemon).call("acquire", "jobs", "a")["allowed"]
    assert daemon.ctl("acquire", "jobs", "a", "--", "true").returncode == 1
    assert daemon.ctl("acquire", "--taken-exit", "75", "jobs", "a", "--", "true").returncode == 75
    assert daemon.ctl("acquire", "--taken-exit", "75", "jobs", "b", "--", "sh", "-c", "exit 3").returncode == 3
    assert daemon.ctl("acquire", "--taken-exit", "0", "--wait=50ms", "jobs", "a", "--", "false").returncode == 0


def test_the_clock_of_tests_says_how_to_have_it(ratelimitd):
    daemon = ratelimitd(POLICY)
    done = daemon.ctl("test-clock", "5")
    assert done.returncode == 4 and "UNKNOWN_METHOD: there is no method 'test_clock' in a daemon that was started without --test-clock" in done.stderr


def test_one_policy_is_one(ratelimitd):
    assert "in effect, 1 policy\n" in ratelimitd(POLICY).ctl("reload").stdout


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_nobody_is_advised_to_join_roots_group(ratelimitd):
    daemon = ratelimitd(POLICY)
    os.chmod(daemon.directory, 0o755)
    os.chmod(daemon.socket, 0o660)

    def become_nobody():
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

    done = subprocess.run([program("ratelimitctl"), "-s", daemon.socket, "ping"], capture_output=True, text=True, preexec_fn=become_nobody)
    assert "it belongs to group root, mode 0660: set listen.group and listen.mode, or name another socket with -s" in done.stderr
    assert "add this user" not in done.stderr


@pytest.mark.parametrize("text, words", [
    (b"log: {level: info}\npolicies: {\xff: {}}\n", ":2: yaml: "),
    (POLICY.replace("limit: 5", "limit: 99999999999999999999999"), "policies.login.limit: '99999999999999999999999' is too large"),
    (POLICY.replace("limit: 5", "limit:\u00a05"), ":2: yaml: a no-break space (U+00A0), which looks like a space and is none; write a space"),
    ("store: {type: redis, redis: {addresses: ['${REDIS_ADDR}']}}\n" + POLICY, "variables are not replaced here; write host:port"),
])
def test_a_wrong_file_is_told_what_to_write(tmp_path, text, words):
    status, errors = checked(tmp_path, text)
    assert status == 3 and words in errors, errors


@pytest.mark.parametrize("text, words", [
    (POLICY.replace("}", ", overrides: [{match: '^vip-.*$', limit: 9}]}"), "looks like a regular expression, and patterns are globs"),
    (POLICY.replace("}", ", lease: 1s}"), "policies.login.lease: can do nothing: no units are leased while fewer than 64 are left, and there are never more than 5"),
])
def test_what_is_taken_but_does_not_do_what_it_says_is_hinted_at(tmp_path, text, words):
    status, errors = checked(tmp_path, text)
    assert status == 0 and words in errors, errors
