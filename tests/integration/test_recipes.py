"""test_recipes.py: the login limits of docs/recipes.md and of the shipped sample keep a guesser out. The guesser tries for
20 minutes of a stopped clock."""

import sys

import pytest

from harness import ROOT

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


@pytest.mark.parametrize("every_s, admitted", [(5, 3), (30, 3), (60, 3), (99, 3), (100, 12)])
def test_a_guesser_gets_three_tries_and_a_patient_one_three_in_five_minutes(every_s, admitted, start):
    assert guesses_admitted(start(RECIPE), every_s, login=lambda _: "alice") == admitted


def test_a_guesser_who_tries_every_second_gets_three_tries_from_many_addresses(start):
    client = start(RECIPE)
    admitted = 0
    for second in range(MINUTES_20):
        at(client, second)
        admitted += client.call("check_all", [["login", "alice"], ["login-ip", f"192.0.2.{second % 250}"]])["allowed"]
    assert admitted == 3


def test_a_guesser_of_many_accounts_gets_thirty_tries_in_five_minutes(start):
    assert guesses_admitted(start(RECIPE), 1, login=lambda second: f"account-{second}") == 4 * 30


def test_the_owner_logs_in_again_after_a_pause(start):
    client = start(RECIPE)
    guesses_admitted(client, 5, login=lambda _: "alice")
    last = MINUTES_20 - 5
    at(client, last + 289)
    assert client.remaining("login", "alice") == 0
    at(client, last + 290)  # the last three tries were five seconds apart: one of them counts no more
    assert client.remaining("login", "alice") == 1


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
