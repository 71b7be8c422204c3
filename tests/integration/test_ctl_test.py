"""test_ctl_test.py: ratelimitctl test: unit tests of limits, what they find, and what is wrong with their files."""

import os
import pty
import re
import shutil
import signal
import subprocess
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

from harness import PATIENCE_S, eventually, program

LOGIN = "policies:\n  login: {algorithm: sliding_log, limit: 5, window: 10s}\n"
POLICIES = LOGIN + """  api: {algorithm: token_bucket, limit: 100, window: 1m, burst: 20, on_failure: allow}
  strict: {algorithm: fixed_window, limit: 2, window: 1h, on_failure: error}
  jobs: {algorithm: concurrency, limit: 2, slot_ttl: 30s}
  day: {algorithm: calendar_window, limit: 1, window: day, timezone: Europe/Berlin}
  two:
    limits:
      - {name: second, algorithm: fixed_window, limit: 2, window: 1s}
      - {name: hour, algorithm: fixed_window, limit: 3, window: 1h}
  shaped: {algorithm: leaky_bucket, limit: 60, window: 1m, burst: 1, max_wait: 10s}
"""
SAMPLE = """config: ratelimitd.yaml
tests:
  - name: a guesser stays out
    start: 2026-01-01T00:00:00Z
    steps:
      - {at: 0s,  check: [login, alice], times: 5, expect: {allowed: 5}}
      - {at: 9s,  check: [login, alice], expect: {denied: 1, retry_in: 1s}}
      - {at: 10s, check: [login, alice], expect: {allowed: 1, remaining: 4}}
  - name: a busy tenant
    steps:
      - {at: 0s, every: 100ms, until: 1m, check: [api, acme], cost: 2, expect: {allowed: 58..60}}
"""


class Place:
    """A folder with ratelimitd.yaml, in which tests are run."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "ratelimitd.yaml").write_text(POLICIES)

    def write(self, text, name="limits.test.yaml"):
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_text(text)
        return name

    def run(self, *arguments, env=None, ctl=None, **options):
        return subprocess.run([ctl or program("ratelimitctl"), "test", *map(str, arguments)], cwd=self.folder, text=True,
                              capture_output=True, stdin=subprocess.DEVNULL, timeout=60, env={**os.environ, **(env or {})}, **options)

    def steps(self, *steps, policies=POLICIES):
        """Of one test, on the lines from 100 on."""
        lines = [*policies.splitlines(), "tests:", "  - name: one", "    steps:"]
        lines += [""] * (99 - len(lines))
        return self.run(self.write("\n".join([*lines, *(f"      - {step}" for step in steps)]) + "\n"))

    def passes(self, *steps, **options):
        done = self.steps(*steps, **options)
        assert (done.returncode, done.stdout, done.stderr) == (0, "1 tests, 0 failed\n", "")

    def failure(self, *steps):
        """(line, what is wrong), of one test that fails."""
        done = self.steps(*steps)
        assert done.returncode == 1 and done.stdout.splitlines()[-1] == "1 tests, 1 failed", done
        found = re.match(r"limits\.test\.yaml:(\d+): one: (.*)\n", done.stdout)
        return int(found[1]), found[2]

    def wrong(self, *steps):
        """{line: what is wrong} of a file that is wrong."""
        return self.mistakes(self.steps(*steps))

    @staticmethod
    def mistakes(done):
        assert (done.returncode, done.stdout) == (2, "0 tests, 0 failed\n"), done
        found = re.findall(r"^limits\.test\.yaml:(\d+): (.*)$", done.stderr, re.M)
        return {int(line): "\n".join(text for number, text in found if number == line) for line, _ in found}


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


# ---- what it prints and ends with -------------------------------------------------------------------------------------


def test_the_sample_passes(place):
    done = place.run(place.write(SAMPLE))
    assert (done.returncode, done.stdout, done.stderr) == (0, "2 tests, 0 failed\n", "")


def test_a_limit_that_somebody_halves_fails_with_the_line_of_the_step_and_the_reason(place):
    (place.folder / "ratelimitd.yaml").write_text(POLICIES.replace("limit: 5,", "limit: 2,"))
    done = place.run(place.write(SAMPLE))
    assert done.returncode == 1 and done.stderr == ""
    assert done.stdout.splitlines() == [
        "limits.test.yaml:6: a guesser stays out: expected allowed 5; seen allowed 2",
        "  why: Denied by the policy's limit (sliding_log, 2 per 10s): 0 of 2 units are free and this check needs 1. It fits in 10s, "
        "unless others come first.",
        "2 tests, 1 failed"]


def test_a_failure_has_every_field_that_differs_and_no_other(place):
    line, what = place.failure("{check: [login, a], times: 6, expect: {allowed: 6, denied: 0..1, limit: 4, remaining: 1..2, source: redis, "
                               "reason: down, bound_by: x, near: true, retry_in: 1s, reset_in: 1m, granted: 1}}")
    assert (line, what) == (100, "expected allowed 6, limit 4, remaining 1..2, granted 1, retry_in 1s, reset_in 1m, source redis, reason down, "
                                 "bound_by x, near true; seen allowed 5, limit 5, remaining 0, granted 0, retry_in 10s, reset_in 10s, "
                                 "source memory, reason null, bound_by null, near false")


def test_several_files_run_each_with_its_own_configuration(place):
    good, here = place.write(SAMPLE), place.write(POLICIES + "tests: [{name: one, steps: [{check: [api, k], expect: {allowed: 1}}]}]\n", "b.yaml")
    place.write(POLICIES.replace("limit: 5,", "limit: 1,"), "sub/ratelimitd.yaml")
    below = place.write(SAMPLE, "sub/limits.test.yaml")
    done = place.run(good, below, here)
    assert done.returncode == 1 and done.stdout.splitlines()[-1] == "5 tests, 1 failed"
    assert "sub/limits.test.yaml:6: a guesser stays out: expected allowed 5; seen allowed 1" in done.stdout


def test_a_wrong_file_is_2_even_if_the_tests_of_another_fail_or_pass(place):
    place.write(POLICIES.replace("limit: 5,", "limit: 1,"), "sub/ratelimitd.yaml")
    good, failing, wrong = place.write(SAMPLE), place.write(SAMPLE, "sub/f.yaml"), place.write("tests: []\n", "wrong.yaml")
    assert [place.run(*files).returncode for files in ([good], [good, failing], [good, wrong], [wrong, failing, good])] == [0, 1, 2, 2]
    assert place.run(good, wrong).stdout == "2 tests, 0 failed\n"


def test_run_selects_tests_by_their_names(place):
    name = place.write(SAMPLE)
    for expression, n in ("guesser", 1), ("^a (busy|quick)", 1), ("a", 2), ("tenant$", 1):
        assert place.run("--run", expression, name).stdout == f"{n} tests, 0 failed\n"


def test_wrong_usage(place):
    name = place.write(SAMPLE)
    for arguments, said in [(["--run", "nobody", name], "--run nobody: no test has such a name"),
                            (["--run", "(", name], "--run (: not a regular expression"), ([], "FILE is missing"),
                            (["--junit", "", name], "--junit : write the name of a file"),
                            ([name, "--junit", "x"], "--junit comes after FILE, where options have ended"),
                            (["--deadline", "1s", name], "test takes no --deadline")]:
        done = place.run(*arguments)
        assert done.returncode == 2 and said in done.stderr
    done = subprocess.run([program("ratelimitctl"), "--json", "test", name], cwd=place.folder, capture_output=True, text=True)
    assert done.returncode == 2 and "test has no --json" in done.stderr


def test_junit_has_a_testcase_each_and_its_failure_has_file_and_line(place):
    (place.folder / "ratelimitd.yaml").write_text(POLICIES.replace("limit: 5,", "limit: 2,"))
    wrong = place.write("tests: []\n", "wrong.yaml")
    name = place.write(SAMPLE.replace("a guesser stays out", '"a <guesser> & \\"friend\\" \\u0001é"'))
    done = place.run("--junit", "report.xml", name, wrong)
    assert done.returncode == 2
    suite = xml.parse(place.folder / "report.xml").getroot()
    assert suite.attrib == {"name": "ratelimitctl test", "tests": "3", "failures": "1", "errors": "1", "skipped": "0"}
    failed, passed, broken = suite
    assert failed.get("classname") == "limits.test.yaml" and failed.get("name") == 'a <guesser> & "friend" ?é'
    assert failed.find("failure").get("message") == "limits.test.yaml:6: expected allowed 5; seen allowed 2"
    assert "why: Denied by" in failed.find("failure").text
    assert passed.get("name") == "a busy tenant" and len(passed) == 0 and float(passed.get("time")) >= 0
    assert broken.find("error").get("message").startswith("wrong.yaml:1: ")


def test_a_report_that_cannot_be_written_is_5(place):
    done = place.run("--junit", "nowhere/report.xml", place.write(SAMPLE))
    assert done.returncode == 5 and "--junit nowhere/report.xml: cannot be written" in done.stderr


# ---- steps ----------------------------------------------------------------------------------------------------------


def test_each_test_begins_without_counts_at_its_own_start(place):
    steps = "".join(f"      - {step}\n" for step in (
        "{check: [login, a], times: 5, expect: {allowed: 5}}", "{acquire: [jobs, a], times: 2, as: s, expect: {allowed: 2}}",
        "{reserve: [api, a, 20], as: r, expect: {allowed: 1}}", "{check: [api, b, {request_id: x}], expect: {remaining: 19}}",
        "{redis: down}", "{check: [login, a], times: 6, expect: {allowed: 5, source: local}}"))
    starts = ["2026-03-01T00:00:00Z", "2026-02-01T00:00:00Z", "1970-01-01T00:00:00Z", "2026-02-01T00:00:00+01:00", "2200-01-01T00:00:00 Europe/Berlin"]
    done = place.run(place.write("config: ratelimitd.yaml\ntests:\n" + "".join(
        f"  - name: test {i}\n    start: {start}\n    steps:\n{steps}" for i, start in enumerate(starts))))
    assert (done.stdout, done.returncode) == ("5 tests, 0 failed\n", 0), done


def test_every_method(place):
    place.passes("{check: [api, k], expect: {allowed: 1, remaining: 19, granted: 1}}",
                 "{check: [api, k, 2], expect: {granted: 2, remaining: 17}}",
                 "{check: [api, k, {cost: 3, request_id: 7}], expect: {granted: 3, remaining: 14}}",
                 "{check: [api, k, {cost: 3, request_id: 7}], expect: {granted: 3, remaining: 14}}",
                 "{check: [api, k, {at_most: 100}], expect: {granted: 14, remaining: 0}}",
                 "{refund: [api, k, 10], expect: {remaining: 10, granted: 0}}",
                 "{refund: [api, k], cost: 4, expect: {remaining: 14}}",
                 "{peek: [api, k], expect: {allowed: 1, remaining: 14}}",
                 "{peek: [api, k], cost: 15, expect: {denied: 1, granted: 0, retry_in: 1ms..1s}}",
                 "{peek: [api, k, 21], expect: {retry_in: never}}",
                 "{reset: [api, k]}",
                 "{check_all: [[api, k, 2], [login, k]], expect: {allowed: 1, granted: 3}}",
                 "{check_many: [[api, k, {cost: 8}], [api, k, 11], [login, k]], expect: {allowed: 2, denied: 1, remaining: 3, limit: 5}}",
                 "{check_all: [[login, k, 6], [api, k]], expect: {denied: 1, bound_by: login, retry_in: never}}",
                 "{check: [two, k], times: 3, expect: {allowed: 2, bound_by: two/second, retry_in: 1s}}",
                 "{at: 1s, check: [two, k], times: 2, expect: {allowed: 1, bound_by: two/hour}}",
                 "{check: [shaped, k], expect: {delay_in: 0}}", "{check: [shaped, k], expect: {allowed: 1, delay_in: 1s}}",
                 "{check: [shaped, k, {max_wait_ms: 0}], expect: {denied: 1}}")


def test_reservations_and_slots_have_names(place):
    place.passes("{reserve: [api, k, 10], as: estimate, expect: {allowed: 1, remaining: 10}}",
                 "{settle: [estimate, 4], expect: {allowed: 1, remaining: 16}}", "{settle: [estimate, 4], expect: {remaining: 16}}",
                 "{reserve: [api, k, 6, {ttl_ms: 1000}], as: estimate, expect: {remaining: 10}}", "{cancel: [estimate], expect: {remaining: 16}}",
                 "{acquire: [jobs, k], as: first, expect: {allowed: 1, remaining: 1}}", "{acquire: [jobs, k], times: 3, as: last, expect: {allowed: 1, denied: 2}}",
                 "{at: 1d, acquire: [jobs, k], expect: {denied: 1}}", "{release: [last]}", "{peek: [jobs, k], expect: {remaining: 1}}",
                 "{release: [first]}", "{peek: [jobs, k], expect: {remaining: 2}}")


def test_a_name_of_what_was_denied_fails(place):
    assert place.failure("{check: [login, k], times: 5}", "{reserve: [login, k, 1], as: r}", "{settle: [r, 1]}") == (
        102, "r names nothing: what was to give it was not allowed")


def test_an_outage_gives_failure_answers_and_keeps_counts(place):
    place.passes("{check: [login, k], times: 2}", "{check: [strict, k], expect: {allowed: 1}}", "{redis: down}",
                 "{check: [api, k], expect: {allowed: 1, source: allow, reason: down}}",
                 "{check: [strict, k], expect: {error: STORE_UNAVAILABLE}}",
                 "{check: [login, k], times: 6, expect: {allowed: 5, denied: 1, source: local, reason: down}}",
                 "{at: 9s, check: [login, k], expect: {denied: 1}}", "{at: 9s, redis: up}",
                 "{check: [login, k], times: 4, expect: {allowed: 3, denied: 1, source: memory, reason: null, retry_in: 1s}}",
                 "{check: [strict, k], expect: {allowed: 1}}")


def test_an_error_fails_the_step_unless_it_is_expected(place):
    place.passes('{check: [login, ""], expect: {error: BAD_KEY}}', "{check: [jobs, k], times: 3, expect: {error: UNSUPPORTED, allowed: 0}}",
                 "{check: [nosuch, k], expect: {error: UNKNOWN_POLICY}}", "{check: [login, k, -1], expect: {error: BAD_COST}}",
                 "{check: [login, k, {nosuch: 1}], expect: {error: BAD_REQUEST}}", "{check: [{algorithm: gcra, limit: 1, window: 1s}, k], "
                 "expect: {error: NOT_PERMITTED}}", "{reset: [login/nosuch, k], expect: {error: UNKNOWN_POLICY}}")
    assert place.failure("{check: [login, k]}", "{check: [jobs, k]}")[0] == 101
    assert place.failure("{check: [jobs, k], expect: {error: BAD_KEY}}")[1].startswith("expected error BAD_KEY; seen UNSUPPORTED: ")
    assert place.failure("{check: [login, k], expect: {error: BAD_KEY}}")[1] == "expected error BAD_KEY; seen error none"


def test_a_message_that_is_longer_than_the_daemon_accepts_fails_the_step_alone(place):
    line, what = place.failure("{check_many: [" + ", ".join(f"[login, {'k' * 900}{i}]" for i in range(100)) + "]}")
    assert (line, what) == (100, "expected no error; seen the request is longer than the daemon accepts (caps.max_frame)")


def test_an_inline_policy_is_a_map(place):
    (place.folder / "ratelimitd.yaml").write_text("inline: {allow: true}\n" + POLICIES)
    policy = "{algorithm: fixed_window, limit: 2, window: 1m}"
    done = place.run(place.write("config: ratelimitd.yaml\ntests:\n  - name: inline\n    steps:\n"
                                 f"      - {{check: [{policy}, k], times: 3, expect: {{allowed: 2, limit: 2}}}}\n"))
    assert (done.returncode, done.stdout) == (0, "1 tests, 0 failed\n"), done


def test_near_is_that_of_a_policy_with_warn_at_and_false_without(place):
    place.passes("{check: [warned, k], times: 7, expect: {allowed: 7, near: false}}", "{check: [warned, k], times: 3, expect: {near: true}}",
                 "{check: [warned, k], expect: {denied: 1, near: true}}", "{peek: [warned, k], expect: {near: true}}",
                 "{check_many: [[login, k], [warned, k]], expect: {near: true}}", "{check_many: [[warned, k], [login, k]], expect: {near: false}}",
                 "{check: [login, k], times: 5, expect: {denied: 2, near: false}}",
                 policies=LOGIN + "  warned: {algorithm: fixed_window, limit: 10, window: 1h, warn_at: 80%}\n")


# ---- time -------------------------------------------------------------------------------------------------------------


def test_times_are_durations_or_dates_and_default_to_the_step_before(place):
    place.passes("{check: [login, k], times: 5, expect: {allowed: 5}}", "{at: 9999ms, check: [login, k], expect: {retry_in: 1ms}}",
                 "{check: [login, k], expect: {retry_in: 1ms}}", "{at: 2026-01-01T00:00:10Z, check: [login, k], expect: {allowed: 1}}",
                 "{at: 2026-01-01T01:00:19.999+01:00, check: [login, k], expect: {remaining: 3}}",
                 "{at: 2026-01-01T01:00:20 Europe/Berlin, peek: [login, k], expect: {remaining: 4}}")


def test_calls_at_intervals_end_before_until(place):
    place.passes("{every: 1s, until: 5s, check: [login, k], expect: {allowed: 5}}", "{check: [login, k], expect: {denied: 1, retry_in: 6s}}",
                 "{at: 5s, every: 2s, until: 10001ms, check: [login, k], expect: {allowed: 0, denied: 3}}",
                 "{every: 1s, until: 12s, times: 3, check: [api, k], expect: {allowed: 9}}")


def test_a_day_of_a_calendar_window_has_the_length_that_its_clocks_say(place):
    place.passes("{at: 2026-03-29T00:00:00 Europe/Berlin, check: [day, k], expect: {allowed: 1}}",
                 "{at: 2026-03-29T01:59:59 Europe/Berlin, check: [day, k], expect: {retry_in: 21h..22h}}",
                 "{at: 2026-03-29T03:00:00 Europe/Berlin, check: [day, k], expect: {retry_in: 21h}}",
                 "{at: 2026-03-30T00:00:00 Europe/Berlin, check: [day, k], expect: {allowed: 1}}")


def test_a_local_time_that_comes_twice_is_the_first_and_an_offset_names_the_other(place):
    place.passes("{at: 2026-10-25T02:30:00 Europe/Berlin, check: [api, k], times: 20, expect: {allowed: 20}}",
                 "{at: 2026-10-25T02:30:00+02:00, check: [api, k], expect: {denied: 1}}",
                 "{at: 2026-10-25T02:30:00+01:00, check: [api, k], expect: {allowed: 1, remaining: 19}}")


def test_a_local_time_that_is_skipped_is_an_error(place):
    assert place.wrong("{at: 2026-03-29T02:30:00 Europe/Berlin, check: [login, k]}") == {
        100: "at: '2026-03-29T02:30:00 Europe/Berlin' is never shown in Europe/Berlin, whose clocks skip it; write a time before or after it"}


@pytest.mark.parametrize("time, said", [
    ("5", "is a duration without its unit"), ("1x", "is not a duration"), ("2026-01-02", "is no date with a time"),
    ("2026-02-30T00:00:00Z", "is no date with a time"), ("2026-01-01T24:00:00Z", "is no date with a time"),
    ("2026-01-02T00:00:00", "has no time zone"), ("2026-01-02T00:00:00+1", "has no time zone"), ("2026-01-02T00:00:00.Z", "has a dot without digits"),
    ("2026-01-02T00:00:00 Europe/Berln", "has no time zone that this machine knows"), ("2026-01-02T00:00:00 ../../etc/passwd", "has no time zone that"),
    ("2300-01-01T00:00:00Z", "is out of bounds"), ("1969-12-31T00:00:00Z", "is out of bounds"), ("99999d", "is too long after the start"),
    ("2025-12-31T23:59:59Z", "is in the past"),
])
def test_a_time_that_is_none_is_an_error(place, time, said):
    assert said in place.wrong("{at: '%s', check: [login, k]}" % time)[100]


# ---- what is wrong with a file ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps, line, said", [
    (["{at: 5s, check: [login, a]}", "{at: 4s, check: [login, a]}"], 101, "at: '4s' is in the past: the step before, or the start, is later by 1s"),
    (["{every: 1s, until: 5s, check: [login, a]}", "{at: 3s, check: [login, a]}"], 101, "at: '3s' is in the past"),
    (["{check: [logn, a]}"], 100, "check: there is no policy 'logn'; did you mean login?"),
    (["{check_many: [[login, a], [nothing-like-it, a]]}"], 100, "there is no policy 'nothing-like-it'; write one of the configuration"),
    (["{reset: [logn/second, a]}"], 100, "reset: there is no policy 'logn'; did you mean login?"),
    (["{until: 5s, check: [login, a]}"], 100, "until: comes without every; write both"),
    (["{every: 5s, check: [login, a]}"], 100, "every: comes without until; write both"),
    (["{every: 5, until: 1m, check: [login, a]}"], 100, "every: '5' is a duration without its unit"),
    (["{every: 0s, until: 1m, check: [login, a]}"], 100, "every: '0s' is no time at all"),
    (["{at: 1m, every: 1s, until: 1m, check: [login, a]}"], 100, "until: '1m' is not after `at`"),
    (["{reset: [login, a], expect: {remaining: 4}}"], 100, "expect: reset is not answered with remaining"),
    (["{acquire: [jobs, a], as: s}", "{release: [s], expect: {allowed: 1}}"], 101, "expect: release is not answered with allowed"),
    (["{check: [login, a], expect: {allowed: 5..3}}"], 100, "expect.allowed: '5..3' is the wrong way round; write 3..5"),
    (["{check: [login, a], expect: {retry_in: 5s..3s}}"], 100, "expect.retry_in: '5s..3s' is the wrong way round; write 3s..5s"),
    (["{check: [login, a], expect: {allowed: 5..}}"], 100, "expect.allowed: '5..' is no range A..B"),
    (["{check: [login, a], expect: {retry_in: 5}}"], 100, "expect.retry_in: '5' is a duration without its unit"),
    (["{check: [login, a], expect: {retry_in: 5us}}"], 100, "expect.retry_in: '5us' is finer than a millisecond"),
    (["{check: [login, a], expect: {alowed: 1}}"], 100, "'alowed' is not known here; did you mean allowed?"),
    (["{check: [login, a], expect: {near: maybe}}"], 100, "expect.near: 'maybe' is neither true nor false"),
    (["{check: [login, a], expect: {error: BAD_KY}}"], 100, "expect.error: 'BAD_KY' is no error code; did you mean BAD_KEY?"),
    (["{check: [login, a], expect: {error: BAD_KEY, limit: 1}}"], 100, "expect: an answer that is an error has no limit"),
    (["{check: [login, a], expect: {}}"], 100, "expect: is empty; write what is expected"),
    (["{check: [login, a], expect: {allowed: }}"], 100, "expect.allowed: has no value"),
    (["{chek: [login, a]}"], 100, "'chek' is not known here; did you mean check?"),
    (["{check: [login, a], tiems: 5}"], 100, "'tiems' is not known here; did you mean times?"),
    (["{check: [login, a], times: 0}"], 100, "times: '0' is no call at all; write 1 or more"),
    (["{check: [login, a], times: 10000001}"], 100, "makes more than 10000000 calls; write a longer `every`"),
    (["{every: 1us, until: 7d, check: [login, a]}"], 100, "makes more than 10000000 calls"),
    (["{at: 1s}"], 100, "steps: has no call; write one, such as check: [login, alice]"),
    (["{check: [login, a], peek: [login, a]}"], 100, "peek: a step is one call, and this one has check, too"),
    (["{check: [login]}"], 100, "check: does not have the parameters of the protocol; write [POLICY, KEY]"),
    (["{check: login}"], 100, "check: is something else; write [POLICY, KEY]"),
    (["{check: [login, a, 1], cost: 2}"], 100, "cost: is the third parameter of check, which has one already"),
    # earlier these two failed the test: "the method is NULL, or the parameters are not one MessagePack array"
    (["{reserve: [login, a, 1], cost: 2}"], 100, "cost: is the third parameter of reserve, which has one already"),
    (["{refund: [login, a, {request_id: r}], cost: 2}"], 100, "cost: is the third parameter of refund, which has one already"),
    (["{check: [login, a], cost: x}"], 100, "cost: 'x' is no number of units"),
    (["{acquire: [jobs, a], cost: 1}"], 100, "cost: is not for acquire; leave it out"),
    (["{check_all: [[login, a]], cost: 1}"], 100, "cost: is not for check_all; write it into the list"),
    (["{check: [login, ~]}"], 100, "check: the key is no text"),
    (["{check_all: [login, a]}"], 100, "check_all: does not have the parameters of the protocol"),
    (["{reserve: [login, a]}"], 100, "reserve: does not have the parameters of the protocol"),
    (["{settle: [x, 1]}"], 100, "settle: no step before names a reservation 'x'; write `as: NAME` into the one that reserves it"),
    (["{reserve: [login, a, 1], as: abc}", "{settle: [abd, 1]}"], 101, "settle: no step before names a reservation 'abd'; did you mean abc?"),
    (["{reserve: [login, a, 1], as: abc}", "{release: [abc]}"], 101, "release: no step before names a slot 'abc'"),
    (["{check: [login, a], as: z}"], 100, "as: names what reserve or acquire has given; leave it out here"),
    (["{redis: sideways}"], 100, "redis: 'sideways' is neither down nor up"),
    (["{redis: down, expect: {allowed: 1}}"], 100, "expect: does not go with redis"),
    (["{redis: down, times: 2}"], 100, "times: does not go with redis"),
    (["{redis: down, check: [login, a]}"], 100, "redis: is a step of its own"),
    (["{check: [login, *name]}"], 100, "an alias (*name); aliases are not supported, write the value out"),
    (["{check: [login, &name a]}"], 100, "yaml: an anchor (&name); anchors are not supported"),
    (["{at: 1s, at: 2s, check: [login, a]}"], 100, "is written twice"),
])
def test_a_step_that_is_wrong_is_named_by_its_line_with_the_way_out(place, steps, line, said):
    assert said in place.wrong(*steps)[line]


def test_every_mistake_of_a_file_is_reported_at_once(place):
    assert sorted(place.wrong("{at: 5, check: [login, a]}", "{chek: [login, a]}", "{check: [login, a], expect: {allowed: 2..1}}")) == [100, 101, 102]


@pytest.mark.parametrize("text, line, said", [
    ("config: ratelimitd.yaml\ntests:\n  - {name: a, steps: [{check: [login, a]}]}\n  - {name: a, steps: [{check: [login, a]}]}\n", 4,
     "name: 'a' is the name of the test on line 3, too"),
    ("config: ratelimitd.yaml\ntests:\n  - {name: a, steps: []}\n", 3, "steps: is empty; write at least one"),
    ("config: ratelimitd.yaml\ntests:\n  - {name: a}\n", 3, "steps: are missing; a test without a step tests nothing"),
    ("config: ratelimitd.yaml\ntests:\n  - {steps: [{check: [login, a]}]}\n", 3, "tests: has no name"),
    ("config: ratelimitd.yaml\ntests:\n  - {name: a, start: 5s, steps: [{check: [login, a]}]}\n", 3, "start: '5s' is no date with a time"),
    ("config: ratelimitd.yaml\ntests:\n  - {name: a, stpes: [{check: [login, a]}]}\n", 3, "'stpes' is not known here; did you mean steps?"),
    ("config: ratelimitd.yaml\ntests: []\n", 2, "tests: is empty"), ("config: ratelimitd.yaml\n", 1, "tests: are missing"),
    ("tests: [{name: a, steps: [{check: [login, a]}]}]\n", 1, "config: is missing"), ("", 1, "is empty"),
    ("config: ratelimitd.yaml\npolicies: {}\ntests: [{name: a, steps: [{check: [login, a]}]}]\n", 2, "policies: does not go with config"),
    ("config: ratelimitd.yaml\ntsets: []\n", 2, "'tsets' is not known here; did you mean tests?"), ("config: [\n", 2, "yaml: "),
])
def test_a_file_that_is_wrong_is_named_by_the_line_with_the_way_out(place, text, line, said):
    assert said in place.mistakes(place.run(place.write(text)))[line]


def test_a_file_that_is_not_there(place):
    done = place.run("nowhere.test.yaml")
    assert done.returncode == 2 and "nowhere.test.yaml: cannot be read: No such file" in done.stderr


def test_a_configuration_that_does_not_load_is_reported_in_its_own_words_and_lines(place):
    (place.folder / "ratelimitd.yaml").write_text(POLICIES.replace("window: 10s", "windw: 10s"))
    done = place.run(place.write(SAMPLE))
    assert done.returncode == 2
    assert "ratelimitd.yaml:2: policies.login.windw: no such setting; did you mean window?\n" in done.stderr
    assert done.stderr.endswith("limits.test.yaml:1: config: ratelimitd.yaml does not load, as said above; correct it\n")
    done = place.steps("{check: [login, a]}", policies=POLICIES.replace("window: 10s", "windw: 10s"))
    assert done.returncode == 2 and "limits.test.yaml:2: policies.login.windw: no such setting; did you mean window?\n" in done.stderr
    place.write(SAMPLE.replace("ratelimitd.yaml", "nowhere.yaml"))
    assert "nowhere.yaml: cannot be read: No such file" in place.run("limits.test.yaml").stderr


def test_more_keys_than_the_store_has_places_is_an_error_and_no_wrong_figure(place):
    (place.folder / "ratelimitd.yaml").write_text("store: {memory: {max_keys: 1000}}\n" + POLICIES)
    def many(n):
        members = ", ".join(f"[strict, k{i}, 2]" for i in range(n))
        return "".join(f"      - {{check_many: [{members}], expect: {{{expected}: {n}}}}}\n" for expected in ("allowed", "denied"))

    head = "config: ratelimitd.yaml\ntests:\n  - name: many\n    steps:\n"
    assert place.run(place.write(head + many(1000))).stdout == "1 tests, 0 failed\n"
    done = place.run(place.write(head + many(1200)))
    assert done.returncode == 1 and "limits.test.yaml:5: many: expected no error; seen OVERLOADED: " in done.stdout
    assert "raise store.memory.max_keys" in done.stdout
    (place.folder / "ratelimitd.yaml").write_text('store: {type: redis, redis: {addresses: ["10.0.0.7:6379"]}}\n' + POLICIES)
    assert place.run(place.write(head + many(1200))).stdout == "1 tests, 0 failed\n"


def test_compat_policies_run_without_a_warning(place):
    place.passes("{check: [old, k], times: 6, expect: {allowed: 5}}", policies=LOGIN + "  old: {compat: first-hit, limit: 5, window: 10s}\n")


def test_a_configuration_of_thousands_of_policies_is_known_to_its_last(place):
    rows = "".join(f"  policy-{i}: {{algorithm: fixed_window, limit: {i + 1}, window: 1h}}\n" for i in range(2500))
    (place.folder / "ratelimitd.yaml").write_text(f"policies:\n{rows}")
    head = "config: ratelimitd.yaml\ntests:\n  - name: last\n    steps:\n"
    steps = [f"      - {{check: [policy-{i}, k], expect: {{limit: {i + 1}}}}}\n" for i in (0, 999, 1000, 1001, 2000, 2499)]
    assert place.run(place.write(head + "".join(steps))).stdout == "1 tests, 0 failed\n"
    assert "there is no policy 'polcy-2499'; did you mean policy-2499?" in place.mistakes(
        place.run(place.write(head + "      - {check: [polcy-2499, k]}\n")))[5]


# ---- its daemon -------------------------------------------------------------------------------------------------------

LONG = ("config: ratelimitd.yaml\ntests:\n  - name: long\n    steps:\n      - {every: 1ms, until: 9999s, check: [api, k]}\n"
        "  - name: short\n    steps:\n      - {check: [api, k], expect: {remaining: 19}}\n")


def children_of(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture
def long_run(place):
    """ratelimitctl test while its daemon is asked, and that daemon's pid. A shell starts what is in its background with SIGINT
    ignored, and this run may be there."""
    (place.folder / "tmp").mkdir()
    process = subprocess.Popen([program("ratelimitctl"), "test", place.write(LONG)], cwd=place.folder, text=True, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "TMPDIR": str(place.folder / "tmp")},
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    listening = eventually(lambda: list((place.folder / "tmp").iterdir()), "the daemon is being started")
    eventually(lambda: not listening[0].exists(), "the connection stands, and its folder is gone")
    yield process, children_of(process.pid)[0]
    process.kill()
    process.communicate()


def test_a_daemon_that_is_killed_in_between_fails_the_test_and_the_next_one_gets_another(long_run):
    process, daemon = long_run
    os.kill(daemon, signal.SIGKILL)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert out.splitlines() == ["limits.test.yaml:5: long: the private daemon was ended by signal 9 (Killed) in between; its messages are on "
                                "standard error", "2 tests, 1 failed"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_behind_however_it_ends(long_run, number):
    process, daemon = long_run
    process.send_signal(number)
    process.wait(PATIENCE_S)
    eventually(lambda: not Path(f"/proc/{daemon}/cmdline").exists() or Path(f"/proc/{daemon}/cmdline").read_bytes() == b"", "the daemon is gone, too")


def test_nothing_is_left_behind_in_the_end(place):
    (place.folder / "tmp").mkdir()
    assert place.run(place.write(SAMPLE), env={"TMPDIR": str(place.folder / "tmp")}).returncode == 0
    assert list((place.folder / "tmp").iterdir()) == []


def test_without_the_daemons_program_it_is_named(place):
    ctl = place.folder / "bin" / "ratelimitctl"
    ctl.parent.mkdir()
    shutil.copy(program("ratelimitctl"), ctl)
    done = place.run(place.write(SAMPLE), ctl=str(ctl), env={"PATH": "/nowhere"})
    assert done.returncode == 2 and "ratelimitd is neither next to ratelimitctl nor on the PATH; install the package ratelimitd" in done.stderr
    assert place.run("limits.test.yaml", ctl=str(ctl), env={"PATH": str(Path(program("ratelimitd")).parent)}).returncode == 0


def test_a_long_step_shows_its_progress_on_a_terminal(place):
    main, end = pty.openpty()
    process = subprocess.Popen([program("ratelimitctl"), "test", place.write(LONG)], cwd=place.folder, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=end)
    try:
        os.close(end)
        seen = b""
        while not re.search(rb"\r\x1b\[Klimits\.test\.yaml:5: \d+ of 9999000 calls", seen):
            seen += os.read(main, 4096)
    finally:
        process.kill()
        process.wait()
        os.close(main)


def test_two_hundred_tests_with_twenty_thousand_calls_run_on_one_daemon(place):
    steps = ("      - {check: [login, k], times: 50, expect: {allowed: 5}}\n"
             "      - {every: 1s, until: 50s, check: [api, k], expect: {allowed: 50}}\n")
    tests = "".join(f"  - name: test {i}\n    steps:\n{steps}" for i in range(200))
    done = place.run("--junit", "report.xml", place.write("config: ratelimitd.yaml\ntests:\n" + tests))
    assert (done.returncode, done.stdout) == (0, "200 tests, 0 failed\n")
    assert len(xml.parse(place.folder / "report.xml").getroot()) == 200
