"""test_conformance.py: the two clients of libratelimit in the conformance suite of clients/. ./dev test clients tests the
clients of the other languages."""

import sys

import pytest

from harness import ROOT

sys.path.insert(0, str(ROOT / "clients" / "conformance"))
import run  # noqa: E402
from subject import variants  # noqa: E402

CASES = run.all_cases()
VARIANTS = {variant.name: variant for variant in variants("c")}
# Without the cases that a C library cannot run; clients/c/conformance/driver.yaml has the reasons.
KEPT = [(variant, case) for variant in VARIANTS for case in CASES if not VARIANTS[variant].reason_against(case)]


@pytest.fixture(scope="module")
def runners(tmp_path_factory):
    run.RESULTS = tmp_path_factory.mktemp("conformance")
    started = {name: run.Runner(variant) for name, variant in VARIANTS.items()}
    yield started
    ends = [runner.end() for runner in started.values()]
    assert [end.message for end in ends if end.verdict == "failed"] == []


@pytest.mark.parametrize("variant, case", KEPT, ids=[f"{variant}-{case}" for variant, case in KEPT])
def test_libratelimit_keeps_the_contract(runners, variant, case):
    result = runners[variant].run(case, CASES[case])
    assert result.verdict == "passed", "\n".join([result.message, *result.transcript])


def test_every_excluded_name_is_a_case():
    groups = {case.split("/")[0] + "/" for case in CASES}
    assert [name for variant in VARIANTS.values() for name in variant.cannot if name not in CASES and name not in groups] == []
