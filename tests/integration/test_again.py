"""test_again.py: what becomes of a test that fails in a full run (tests/again.py)."""

import importlib.util
import json
import subprocess
import sys

import pytest

from harness import ROOT

sys.path.append(str(ROOT / "tests"))
import again  # noqa: E402

PYTEST = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]


def failed(name, passes_after=0, n=1, tmp_path=None):
    """A test that fails alone until it was run `passes_after` times."""
    script = f'echo x >>{tmp_path}/{name}; test $(wc -l <{tmp_path}/{name}) -gt {passes_after} && echo "1 passed"'
    return again.Failed(f"a.py::{name}", n, "AssertionError: too late\nmore", ["sh", "-c", script], r"^1 passed$")


@pytest.fixture
def settled(tmp_path, capfd):
    """settled(Failed..., known={names}) -> (failures that count as passes, the output, runs of each by name)"""
    def settle(*found, known=()):
        for one in found:
            one.leave(tmp_path / "failed")
        n = again.settle(tmp_path / "failed", set(known))
        runs = {path.name: len(path.read_text().splitlines()) for path in tmp_path.iterdir() if path.is_file()}
        return n, capfd.readouterr().out, runs

    return settle


def test_a_run_without_failures_prints_nothing(settled):
    assert settled() == (0, "", {})


def test_a_test_that_passes_alone_three_times_counts_as_passed_and_is_named_with_its_reason(settled, tmp_path):
    n, output, runs = settled(failed("one", n=2, tmp_path=tmp_path))
    assert (n, runs) == (2, {"one": 3})
    assert "-- failed beside others\n   a.py::one: AssertionError: too late\n" in output


def test_a_test_that_fails_alone_has_failed_and_shows_its_output(settled, tmp_path):
    n, output, runs = settled(failed("one", passes_after=1, tmp_path=tmp_path), failed("two", tmp_path=tmp_path))
    assert (n, runs) == (1, {"one": 1, "two": 3})
    assert "failed alone, too (attempt 1): a.py::one\n" in output and "   a.py::one: " not in output


def test_one_attempt_of_three_that_fails_is_a_failure(settled, tmp_path):
    script = f"echo x >>{tmp_path}/one; test $(wc -l <{tmp_path}/one) != 3 && echo '1 passed'"
    n, _, runs = settled(again.Failed("one", 1, "", ["sh", "-c", script], "^1 passed"))
    assert (n, runs) == (0, {"one": 3})


def test_a_test_that_is_listed_already_has_failed_with_any_parameters(settled, tmp_path):
    n, output, _ = settled(failed("one[redis]", tmp_path=tmp_path), failed("another", tmp_path=tmp_path), known={"a.py::one"})
    assert n == 1
    assert "a.py::one[redis]: AssertionError: too late\n      stands in tests/failed_beside_others already" in output


def test_three_may_pass_alone_and_more_fail_the_run(settled, tmp_path):
    n, _, _ = settled(*(failed(f"t{i}", tmp_path=tmp_path) for i in range(3)))
    assert n == 3
    n, output, runs = settled(*(failed(f"t{i}", tmp_path=tmp_path) for i in range(3, 6)))
    assert n == 0
    assert "4 passed alone: too many; 2 were not run again" in output
    assert runs["t0"] == 6 and "t4" not in runs


def test_an_attempt_that_runs_no_test_has_not_passed(settled):
    assert settled(again.Failed("one", 1, "", ["echo", "no tests ran"], "^1 passed"))[0] == 0
    assert settled(again.Failed("two", 1, "", ["/no/such/program"], ""))[0] == 0


TESTS = """
import pytest

class TestGroup:
    def test_in_a_class(self):
        assert False, "in a class"

@pytest.mark.parametrize("what", ["a b", "c::d[e]/f.py"])
def test_with_parameters(what):
    assert not what, "with\\nmore"

@pytest.fixture
def ends_badly():
    yield
    assert False, "at its end"

def test_fails_twice(ends_badly):
    assert False, "itself"

def test_is_skipped():
    pytest.skip("so it is")

def test_passes():
    pass
"""


def test_failed_tests_of_pytest_are_found_by_name_and_run_alone(tmp_path):
    (tmp_path / "tests" / "folder").mkdir(parents=True)
    (tmp_path / "tests" / "pytest.ini").write_text("[pytest]\n")
    file, report = tmp_path / "tests" / "folder" / "test_it.py", tmp_path / "report.xml"
    file.write_text(TESTS)
    subprocess.run([*PYTEST, "tests/folder", f"--junitxml={report}", "-o", "junit_family=xunit1"], cwd=tmp_path, capture_output=True)
    found = list(again.of_pytest(report, "tests/", PYTEST, cwd=tmp_path))
    assert [(one.name, one.n) for one in found] == [
        ("tests/folder/test_it.py::TestGroup::test_in_a_class", 1), ("tests/folder/test_it.py::test_with_parameters[a_b]", 1),
        ("tests/folder/test_it.py::test_with_parameters[c::d[e]/f.py]", 1), ("tests/folder/test_it.py::test_fails_twice", 2)]
    assert "AssertionError" in found[2].run()
    file.write_text(TESTS.replace("assert", "assert True or"))
    assert [one.run() for one in found[::2]] == [None] * 2


def test_the_list_is_read_and_a_row_without_a_reason_is_refused(tmp_path):
    assert again.known() is not None  # the list in the tree
    path = tmp_path / "list"
    path.write_text("# head\n\n2026-11-28 tests/a.py::test_b[c]: Redis was late\n")
    assert again.known(path) == {"tests/a.py::test_b"}
    path.write_text("2026-11-28 tests/a.py::test_b\n")
    with pytest.raises(ValueError, match="list:1: not `DATE NAME: REASON`"):
        again.known(path)


def test_with_a_broken_list_no_failure_is_forgiven(tmp_path, monkeypatch, capfd):
    failed("one", tmp_path=tmp_path).leave(tmp_path / "failed")
    monkeypatch.setattr(again, "known", lambda: open(tmp_path / "missing"))
    assert again.settle(tmp_path / "failed") == 0
    assert "not run again: " in capfd.readouterr().out


def test_the_sum_of_all_parts_has_what_passed_alone_among_the_passed(tmp_path):
    failed("one", tmp_path=tmp_path).leave(tmp_path / "failed")
    for name, text in (("core", "-- x\n10 passed, 2 failed, 1 skipped\n"), ("faults", "3 passed, 0 failed, 0 skipped\n"), ("ended", "-- y\n")):
        (tmp_path / name).write_text(text)

    def ci(*parts):
        return subprocess.run([sys.executable, ROOT / "tests" / "again.py", tmp_path / "failed", *(tmp_path / part for part in parts)],
                              capture_output=True, text=True)

    done = ci("core", "faults")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "14 passed, 1 failed, 1 skipped")
    assert ci("faults", "ended", "missing").stdout.splitlines()[-1] == "4 passed, 1 failed, 0 skipped"
    (tmp_path / "core").write_text("10 passed, 1 failed, 1 skipped\n")
    done = ci("core", "faults")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "14 passed, 0 failed, 1 skipped")


def module_of(path, name):
    """Not by name: other folders have modules of that name, too, and one run of pytest may hold both."""
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CTEST = """<testsuite>
<testcase name="test_a" status="run"><system-out>[       OK ] one\n[       OK ] two</system-out></testcase>
<testcase name="test_b" status="fail"><system-out>[       OK ] one\n[  FAILED  ] late\n[  FAILED  ] late</system-out></testcase>
<testcase name="test_c" status="fail"><system-out>Segmentation fault</system-out></testcase>
</testsuite>"""


def test_a_program_of_ctest_that_failed_is_run_again_as_a_whole(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "steps", module_of("clients/steps.py", "clients_steps"))
    run = module_of("tests/run.py", "tests_run")
    (tmp_path / "ctest.xml").write_text(CTEST)
    found = list(run.of_ctest(tmp_path / "ctest.xml"))
    assert str(sum((count for _, count, _ in found), run.Count())) == "3 passed, 2 failed, 0 skipped"
    b, c = run.failed_in_ctest("asan", found)
    assert (b.name, b.n, b.reason) == ("test_b", 1, "late (ctest-asan.log)")
    assert b.argv[:5] == ["ctest", "--test-dir", "build/asan", "-R", "^test_b$"]
    assert (c.name, c.n) == ("test_c", 1) and "fail without a failed test" in c.reason


@pytest.fixture
def steps(tmp_path, monkeypatch):
    """A client's steps, and a function that returns what they left to run again."""
    monkeypatch.setenv("TEST_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("FAILED_TESTS", str(tmp_path / "failed"))
    monkeypatch.setenv("DEPS", "/deps")
    (tmp_path / "go").mkdir()
    made = module_of("clients/steps.py", "clients_steps").Steps(tmp_path / "go")

    def left():
        return [again.Failed(**json.loads(path.read_text())) for path in sorted((tmp_path / "failed").glob("*"))]

    return made, left


def test_a_case_of_the_conformance_suite_is_run_again_by_its_name(steps):
    made, left = steps
    made.summed("conformance", ["sh", "-c", "echo '   FAILED time/a-case: no answer\n7 passed, 1 failed, 0 skipped'; exit 1", "x"],
                env={"MORE": "1"})
    one, = left()
    assert (one.name, one.n, one.reason, one.argv[3:]) == ("clients/go/conformance/time/a-case", 1, "time/a-case: no answer", ["x", "time/a-case"])
    assert one.env.items() >= {"MORE": "1", "DEPS": "/deps"}.items() and one.cwd == str(made.folder)


def test_an_installation_is_run_again_as_a_whole(steps):
    made, left = steps
    made.summed("installation", ["sh", "-c", "echo '   FAILED install (1.0 s)\n6 passed, 1 failed, 0 skipped'; exit 1"], whole=True)
    one, = left()
    assert (one.name, one.n, len(one.argv)) == ("clients/go/installation", 1, 3)


def test_a_test_of_go_is_run_again_with_its_parts(steps):
    made, left = steps
    events = [{"Action": "fail", "Package": "p/q", "Test": name} for name in ("TestA/b", "TestA", "TestC")]
    made.go("tests", ["sh", "-c", "printf '%s\n' \"$@\"; exit 1", "x", *map(json.dumps, events)])
    a, c = left()
    assert (a.name, a.n, a.argv[-3:]) == ("clients/go/p/q.TestA", 2, ["-run", "^TestA$", "p/q"])
    assert c.n == 1 and made.total.failed == 3


def test_a_class_of_java_is_run_again(steps):
    made, left = steps
    report = '<testsuite tests="2" failures="1"><testcase classname="a.B" name="c(1.5)"><failure message="late"/></testcase></testsuite>'
    made.junit("tests", ["sh", "-c", f"mkdir -p target; echo '{report}' >target/a.xml; exit 1"], reports="target/*.xml",
               of_class=lambda name: ["mvn", f"-Dtest={name}"])
    one, = left()
    assert (one.name, one.n, one.reason, one.argv) == ("clients/go/a.B", 1, "c(1.5): late", ["mvn", "-Dtest=a.B"])


def test_a_file_of_node_is_run_again(steps):
    made, left = steps
    output = "not ok 1 - counts\n  ---\n  location: '/x/tests/a.test.mjs:3:1'\n  failureType: 'testCodeFailure'\n  ...\n# pass 4\n# fail 2\n"
    made.node("tests", ["sh", "-c", 'printf %s "$0"; exit 1', output])
    one, = left()
    assert (one.name, one.n, one.argv) == ("clients/go/a.test.mjs", 2, ["node", "--test", "/x/tests/a.test.mjs"])


def test_a_test_of_pytest_is_run_again_in_the_clients_folder(steps):
    made, left = steps
    (made.folder / "tests").mkdir()
    (made.folder / "tests" / "test_it.py").write_text("def test_it():\n    assert False, 'late'\n")
    made.pytest("tests", sys.executable, "tests")
    one, = left()
    assert (one.name, one.n, one.reason) == ("clients/go/tests/test_it.py::test_it", 1, "AssertionError: late")
    assert "AssertionError" in one.run()
    (made.folder / "tests" / "test_it.py").write_text("def test_it():\n    assert True\n")
    assert one.run() is None


def test_a_tool_is_not_run_again(steps):
    made, left = steps
    made.tool("format", ["false"])
    assert made.total.failed == 1 and left() == []


LANGUAGE = """#!/bin/sh
echo '-- a step: {sum}'
echo 'a late word'
{leave}
echo '{sum}'
"""


def test_languages_run_at_the_same_time_and_their_failed_tests_at_the_end(tmp_path, monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "steps", module_of("clients/steps.py", "clients_steps"))
    monkeypatch.setenv("TEST_RESULTS", str(tmp_path / "results"))
    monkeypatch.delenv("FAILED_TESTS", raising=False)
    monkeypatch.delenv("CI", raising=False)
    clients = module_of("tests/clients.py", "tests_clients")
    monkeypatch.setattr(clients, "ROOT", tmp_path)
    left = json.dumps({"name": "clients/b/case", "n": 1, "reason": "late", "argv": ["echo", "1 passed"], "passes": "^1 passed"})
    leave = f"mkdir -p $FAILED_TESTS; echo '{left}' >$FAILED_TESTS/one.json; exit 1"
    for name, counts, more in (("a", "3 passed, 0 failed, 0 skipped", ""), ("b", "1 passed, 1 failed, 0 skipped", f"echo '1 passed, 1 failed, 0 skipped'; {leave}")):
        (tmp_path / "clients" / name).mkdir(parents=True)
        (tmp_path / "clients" / name / "test").write_text(LANGUAGE.format(sum=counts, leave=more))
        (tmp_path / "clients" / name / "test").chmod(0o755)
    assert clients.test(["a", "b", "c"], ["c"]) == 0
    output = capfd.readouterr().out
    assert "   a late word\n" in output and "-- c: its tools are missing" in output
    assert output.splitlines()[-1] == "5 passed, 0 failed, 1 skipped"
