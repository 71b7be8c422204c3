"""test_recipes.py: the limits of docs/recipes.md do what the page says: the tests of deploy/recipes pass, and the login limits, also
of the shipped sample, keep a guesser out, who tries for 20 minutes of a stopped clock."""

import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as xml

import pytest
import yaml

from harness import ROOT, program

sys.path.insert(0, str(ROOT / "tests"))
import documents  # noqa: E402

RECIPE = next(block.text for block in documents.blocks_of(ROOT / "docs" / "recipes.md") if "\n  login:" in block.text)
SAMPLE = (ROOT / "systemd" / "ratelimitd.yaml").read_text()
BEGIN_S, MINUTES_20 = 4_000_000_000, 1200


@pytest.fixture
def start(ratelimitd, connect):
    return lambda configuration: connect(ratelimitd(configuration, arguments=["--test-clock"]))


def at(client, second):
    client.call("test_clock", (BEGIN_S + second) * 1_000_000)


def guesses_admitted(client, every_s, login, address="192.0.2.7"):
    """Of one try every so many seconds, as the recipe asks; login(second) is the account tried then."""
    admitted = 0
    for second in range(0, MINUTES_20, every_s):
        at(client, second)
        admitted += client.call("check_all", [["login", login(second)], ["login-ip", address]])["allowed"]
    return admitted


@pytest.mark.parametrize("every_s, admitted", [(5, 6), (30, 6), (60, 6), (99, 6), (100, 12)])
def test_a_guesser_gets_three_tries_before_a_pause_and_three_after_it_and_a_patient_one_three_in_five_minutes(every_s, admitted, start):
    assert guesses_admitted(start(RECIPE), every_s, login=lambda _: "alice") == admitted


def test_a_guesser_who_tries_every_second_gets_no_more_tries_from_many_addresses(start):
    client = start(RECIPE)
    admitted = 0
    for second in range(MINUTES_20):
        at(client, second)
        admitted += client.call("check_all", [["login", "alice"], ["login-ip", f"192.0.2.{second % 250}"]])["allowed"]
    assert admitted == 6


def test_a_guesser_of_many_accounts_gets_thirty_tries_in_five_minutes(start):
    assert guesses_admitted(start(RECIPE), 1, login=lambda second: f"account-{second}") == 4 * 30


def test_the_owner_logs_in_again_after_a_pause(start):
    client = start(RECIPE)
    guesses_admitted(client, 5, login=lambda _: "alice")
    second_breach_s, pause_s = 330, 25 * 60
    at(client, second_breach_s + pause_s - 1)
    assert client.remaining("login", "alice") == 0
    at(client, second_breach_s + pause_s)
    assert client.remaining("login", "alice") == 3


def test_the_login_of_the_sample_denies_until_the_guesser_pauses(start):
    client, admitted = start(SAMPLE), 0
    for second in range(MINUTES_20):
        at(client, second)
        admitted += client.check("login", "alice")["allowed"]
    assert admitted == 5


@pytest.mark.parametrize("setting", ["", ", count_denied: true"])
def test_a_fixed_window_admits_a_guesser_again_in_each_window_as_the_documents_say(setting, start):
    client = start(f"policies: {{login: {{algorithm: fixed_window, start: first_hit, limit: 3, window: 5m{setting}}}}}")
    admitted = 0
    for second in range(0, MINUTES_20, 5):
        at(client, second)
        admitted += client.check("login", "alice")["allowed"]
    assert admitted == 4 * 3


# ---- deploy/recipes: each recipe's tests, which are installed as samples ----------------------------------------------

TESTS = ROOT / "deploy" / "recipes"
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", (ROOT / "docs" / "recipes.md").read_text(), re.M | re.S))


def file_of(section):
    return TESTS / f"{re.sub(r'[^a-z0-9]+', '-', section.lower())}.test.yaml"


def test_every_recipe_has_its_tests():
    assert {path.name for path in TESTS.iterdir()} == {file_of(section).name for section in SECTIONS}


@pytest.mark.parametrize("section", SECTIONS)
def test_the_tests_of_a_recipe_are_of_its_policies_and_pass(section):
    [recipe] = re.findall(r"^```yaml\n(policies:.*?)^```", SECTIONS[section], re.M | re.S)
    sample = yaml.safe_load(file_of(section).read_text())
    assert sample["policies"] == yaml.safe_load(recipe)["policies"]
    assert len(sample["tests"]) >= 2
    done = subprocess.run([program("ratelimitctl"), "test", file_of(section)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{len(sample['tests'])} tests, 0 failed\n", "")


@pytest.mark.parametrize("section", SECTIONS)
def test_the_tests_of_a_recipe_fail_if_a_limit_is_halved(section, tmp_path):
    """Or a burst: each of its policies, one after another."""
    text = file_of(section).read_text()
    head = text.index("\ntests:")
    for found in re.finditer(r"\b(?:limit|burst): (\d+)", text[:head]):
        halved = tmp_path / "halved.test.yaml"
        halved.write_text(f"{text[:found.start(1)]}{int(found[1]) // 2}{text[found.end(1):]}")
        done = subprocess.run([program("ratelimitctl"), "test", halved], capture_output=True, text=True, timeout=60)
        assert done.returncode in (1, 2) and f"{halved}:" in done.stdout + done.stderr, f"{found[0]}: halved, and no test fails"


@pytest.mark.parametrize("name, script", [
    ("github.yml", lambda sample: [step["run"] for step in sample["jobs"]["test"]["steps"] if "run" in step]),
    ("gitlab.yml", lambda sample: sample["limits"]["script"]),
])
def test_the_samples_for_a_ci_fail_when_a_limit_is_halved(name, script, tmp_path):
    [command] = script(yaml.safe_load((ROOT / "deploy" / "ci" / name).read_text()))
    (tmp_path / "limits").mkdir()
    shutil.copy(file_of("Logins"), tmp_path / "limits")
    env = {**os.environ, "PATH": f"{os.path.dirname(program('ratelimitctl'))}:{os.environ['PATH']}"}

    def run():
        return subprocess.run(["sh", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)

    assert run().returncode == 0
    changed = tmp_path / "limits" / "logins.test.yaml"
    changed.write_text(changed.read_text().replace("limit: 3,", "limit: 1,"))
    assert run().returncode == 1
    assert xml.parse(tmp_path / "limits.xml").getroot().get("failures") != "0"
