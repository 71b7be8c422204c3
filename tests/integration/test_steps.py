"""test_steps.py: what `./dev test clients` prints of a failed test, in each kind of report: its name and message, first."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import pytest

# Not by name: tests/model has a module of that name, too, and one run of pytest may hold both.
SPEC = importlib.util.spec_from_file_location("clients_steps", Path(__file__).resolve().parents[2] / "clients" / "steps.py")
module = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(module)

MANY = "for (let i = 0; i < 200; i++) test(`it goes on ${i}`, () => {})"
NODE = f"""
import assert from 'node:assert/strict'
import {{ describe, test }} from 'node:test'
describe('a limit', () => test('counts by address', () => assert.equal('their address', 'another one')))
{MANY}
"""
JUNIT = """<testsuites><testsuite tests="2" failures="1"><testcase classname="limits" name="counts"/>
<testcase classname="limits" name="denies"><failure message="it was allowed">a long report</failure></testcase></testsuite></testsuites>"""


def events(*found):
    return "".join(json.dumps(event) + "\n" for event in found)


GO = events({"Action": "output", "Package": "p", "Test": "TestDenies", "Output": "=== RUN   TestDenies\n"},
            {"Action": "output", "Package": "p", "Test": "TestDenies", "Output": "    x_test.go:7: it was allowed\n"},
            {"Action": "fail", "Package": "p", "Test": "TestDenies"}, {"Action": "pass", "Package": "p", "Test": "TestCounts"},
            {"Action": "fail", "Package": "p"},
            {"Action": "build-output", "ImportPath": "q", "Output": "q.go:1: syntax error\n"},
            {"Action": "build-fail", "ImportPath": "q"})
SUM = """-- conformance of node
   FAILED time/a-case: no answer
   FAILED install (1.0 s)
      npm: not found
7 passed, 2 failed, 0 skipped
"""


@pytest.fixture
def steps(tmp_path, monkeypatch):
    monkeypatch.setenv("TEST_RESULTS", str(tmp_path / "results"))
    return module.Steps(tmp_path)


def printing(tmp_path, text):
    """The argv of a tool that fails with this output."""
    (tmp_path / "output").write_text(text)
    return ["sh", "-c", f"cat {tmp_path}/output; exit 1"]


@pytest.mark.parametrize("reporter", ["tap", "spec"])
def test_a_failed_test_of_node_is_named_with_its_message_before_all_that_passed(steps, tmp_path, capfd, reporter):
    if not shutil.which("node"):
        pytest.skip("no node here")
    (tmp_path / "x.test.mjs").write_text(NODE)
    count = steps.node("tests", ["node", "--test", f"--test-reporter={reporter}", tmp_path / "x.test.mjs"])
    first = capfd.readouterr().out[:2000]
    assert (count.passed, count.failed) == (200, 1)
    assert "counts by address" in first and "their address" in first and "it goes on" not in first.partition("their address")[0]


def test_a_failed_test_of_go_is_named_with_its_message(steps, tmp_path, capfd):
    count = steps.go("tests", printing(tmp_path, GO))
    assert (count.passed, count.failed) == (1, 2)
    assert capfd.readouterr().out.startswith("""   failed: p TestDenies
          x_test.go:7: it was allowed
   failed: q
      q.go:1: syntax error
""")


def test_a_failed_test_of_a_junit_report_is_named_with_its_message(steps, tmp_path, capfd):
    count = steps.junit("tests", ["sh", "-c", f"printf '%s' '{JUNIT}' >'{{report}}'; exit 1"])
    assert (count.passed, count.failed) == (1, 1)
    assert capfd.readouterr().out.startswith("   failed: limits.denies\n      it was allowed\n")


def test_a_failed_case_of_a_suite_is_named_with_its_message(steps, tmp_path, capfd):
    count = steps.summed("conformance", printing(tmp_path, SUM))
    assert (count.passed, count.failed) == (7, 2)
    assert capfd.readouterr().out.startswith("""   failed: time/a-case: no answer
   failed: install (1.0 s)
      npm: not found
""")


def test_a_failed_tool_is_one_failed_test_with_the_end_of_its_output(steps, tmp_path, capfd):
    count = steps.tool("types", printing(tmp_path, "a mistake\n"))
    assert (count.passed, count.failed) == (0, 1)
    assert capfd.readouterr().out.startswith("   a mistake\n-- ")
