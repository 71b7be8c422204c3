"""test_ctl_metrics.py: the page of metrics through ratelimitctl: whole, without HTTP, and into a file in one step."""

import json
import os
import stat
import subprocess

import msgpack
import pytest

from harness import DONE, PATIENCE_S, REFUSED, USAGE, RpcError, program
from http_client import ADMIN
from http_metrics import Page, metrics
from test_ctl import Fake

POLICIES = """policies:
  login: {algorithm: fixed_window, limit: 5, window: 1h}
  open: {unlimited: true}
"""
OUTPUT = 5  # exit status


def many(n):
    policies = "".join(f"  p{i}: {{algorithm: fixed_window, limit: 1, window: 1h}}\n" for i in range(n))
    return f"admin: {{metrics_policies: {n}}}\npolicies:\n{policies}"


def parts_of(client):
    """The answers of a whole page."""
    answers = [client.call("metrics")]
    while "next" in answers[-1]:
        answers.append(client.call("metrics", answers[-1]["next"]))
    return answers


def test_it_needs_no_listener_for_http(ratelimitd, connect):
    daemon = ratelimitd(POLICIES)
    client = connect(daemon)
    for _ in range(7):
        client.check("login", "k")
    done = daemon.ctl("metrics")
    assert (done.returncode, done.stderr) == (DONE, "") and done.stdout.endswith("\n")
    page = Page(done.stdout)
    assert page.sum("ratelimitd_decisions_total", policy="login", result="denied") == 2
    assert page.value("ratelimitd_limit_denials_total", policy="login", limit="login") == 2


def test_it_has_what_the_page_over_http_has_but_for_the_process(ratelimitd, redis):
    """node_exporter has process_* of its own, and shows nothing at all if a file brings them a second time."""
    daemon = ratelimitd(ADMIN + POLICIES, redis=redis)
    with daemon.client() as client:
        client.check("login", "k")
    over_http, by_ctl = metrics(daemon), Page(daemon.ctl("metrics").stdout)
    own = {name for name in over_http.types if name.startswith("process_")}
    assert len(own) >= 4 and set(over_http.types) - set(by_ctl.types) == own
    assert {key[0] for key in by_ctl.series} <= {key[0] for key in over_http.series}
    assert {line.split(" ")[0] for line in by_ctl.text.splitlines() if line.startswith("ratelimitd_limit_")} \
        == {line.split(" ")[0] for line in over_http.text.splitlines() if line.startswith("ratelimitd_limit_")}


def test_no_line_has_a_timestamp(ratelimitd):
    """node_exporter refuses the file."""
    page = ratelimitd(POLICIES).ctl("metrics").stdout
    assert all(len(line.rsplit("}", 1)[-1].split()) <= 2 for line in page.splitlines() if not line.startswith("#"))


def test_in_json_it_is_one_text(ratelimitd):
    done = ratelimitd(POLICIES).ctl("--json", "metrics")
    assert Page(json.loads(done.stdout)["metrics"]).value("ratelimitd_connections") == 1


# ---- a file -------------------------------------------------------------------------------------------------------


def test_a_file_is_replaced_in_one_step_and_readable_by_all(ratelimitd, tmp_path):
    daemon = ratelimitd(POLICIES)
    path = tmp_path / "ratelimitd.prom"
    previous = os.umask(0o077)
    try:
        for name in ("metrics", "metrics"):
            done = daemon.ctl(name, "--output", path)
            assert (done.returncode, done.stdout, done.stderr) == (DONE, "", "")
            assert stat.S_IMODE(path.stat().st_mode) == 0o644
    finally:
        os.umask(previous)
    assert Page(path.read_text()).value("ratelimitd_connections_accepted_total") == 2
    with open(path) as reader:
        daemon.ctl("metrics", "--output", path, check=True)
        assert Page(reader.read()).value("ratelimitd_connections_accepted_total") == 2  # still the old one, and whole
    assert [entry.name for entry in tmp_path.iterdir()] == ["ratelimitd.prom"]


def test_what_is_no_regular_file_is_left_as_it_is(ratelimitd, tmp_path):
    daemon = ratelimitd(POLICIES)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    for name in ("folder", "link", "/dev/null"):
        done = daemon.ctl("metrics", "--output", tmp_path / name)
        assert done.returncode == OUTPUT and "no regular file" in done.stderr and "standard output" in done.stderr, name
    assert (tmp_path / "link").is_symlink() and stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["folder", "link"]


def test_a_file_that_cannot_be_written_is_named(ratelimitd, tmp_path):
    done = ratelimitd(POLICIES).ctl("--json", "metrics", "--output", tmp_path / "no" / "where")
    assert done.returncode == OUTPUT and f"{tmp_path}/no/where: No such file" in done.stderr
    assert json.loads(done.stdout)["error"] == "OUTPUT"


def test_without_the_daemon_the_old_file_stays(ratelimitd, tmp_path):
    daemon = ratelimitd(POLICIES)
    path = tmp_path / "ratelimitd.prom"
    daemon.ctl("metrics", "--output", path, check=True)
    before = path.read_text()
    daemon.stop()
    assert daemon.ctl("metrics", "--output", path).returncode not in (DONE, USAGE)
    assert path.read_text() == before and [entry.name for entry in tmp_path.iterdir()] == ["ratelimitd.prom"]


@pytest.mark.parametrize("arguments", [["metrics", "--output"], ["metrics", "--output", ""], ["metrics", "x"],
                                       ["stats", "--output", "x"]], ids=str)
def test_wrong_usage_is_reported_before_the_daemon_is_asked(ratelimitd, arguments):
    done = ratelimitd(POLICIES).ctl(*arguments)
    assert done.returncode == USAGE and done.stderr


# ---- in parts -----------------------------------------------------------------------------------------------------


def test_a_long_page_comes_in_parts_that_are_whole_together(ratelimitd, connect):
    """Longer than the 4 MiB that an answer may have."""
    daemon = ratelimitd(many(8000))
    client = connect(daemon)
    client.check("p7999", "k")
    answers = parts_of(client)
    assert len(answers) > 100 and max(len(answer["text"]) for answer in answers) < 32_768
    assert [answer.get("first") for answer in answers] == [True] + [None] * (len(answers) - 1)
    text = "".join(answer["text"] for answer in answers)
    page = Page(text)
    assert len(page.values("ratelimitd_limit_units", "policy")) == 8000 and len(text) > 4 << 20
    assert page.value("ratelimitd_granted_units_total", policy="p7999") == 1
    assert Page(daemon.ctl("metrics").stdout).types == page.types


def test_each_part_is_little_work(ratelimitd, connect):
    """8000 policies without a line in most families: they are passed over some hundred at a time."""
    policies = "".join(f"  p{i}: {{unlimited: true}}\n" for i in range(8000))
    client = connect(ratelimitd(f"admin: {{metrics_policies: 8000}}\npolicies:\n{policies}"))
    answers = parts_of(client)
    assert Page("".join(answer["text"] for answer in answers)).sum("ratelimitd_build_info") == 1
    assert [answer["text"] for answer in answers].count("") > 50


def test_after_a_reload_the_page_begins_anew(ratelimitd, connect):
    daemon = ratelimitd(many(500))
    client = connect(daemon)
    first = client.call("metrics")
    daemon.configure(many(3))
    daemon.reload()
    daemon.wait_for_log("reload: .* read again")
    again = client.call("metrics", first["next"])
    assert again["first"] is True and again["text"].startswith("# HELP ratelimitd_build_info")
    assert Page("".join(answer["text"] for answer in parts_of(client))).values("ratelimitd_limit_units", "policy") == ["p0", "p1", "p2"]


@pytest.mark.parametrize("next_", ["", "1", "1.", ".1", "1.2.3", "1.-2", "a.b", "01.2", "1.2 ", "1.99999999999999999999", 5, {},
                                   "1" * 100], ids=repr)
def test_a_next_that_no_answer_had_is_refused(ratelimitd, connect, next_):
    client = connect(ratelimitd(POLICIES))
    with pytest.raises(RpcError, match="BAD_REQUEST: next: must be the str"):
        client.call("metrics", next_)
    assert client.call("metrics", None)["first"] is True


def test_a_place_behind_the_end_has_nothing(ratelimitd, connect):
    client = connect(ratelimitd(many(500)))
    of_configuration = client.call("metrics")["next"].partition(".")[0]
    assert client.call("metrics", f"{of_configuration}.18446744073709551615") == {"text": ""}


def test_a_daemon_that_is_older_is_named(tmp_path):
    error = "UNKNOWN_METHOD: there is no method 'metrics'"
    with Fake(lambda msgid: msgpack.packb([1, msgid, error, None])) as fake:
        done = subprocess.run([program("ratelimitctl"), "-s", fake.path, "metrics", "--output", str(tmp_path / "x")], text=True,
                              capture_output=True, timeout=PATIENCE_S, stdin=subprocess.DEVNULL)
    assert done.returncode == REFUSED and "UNKNOWN_METHOD" in done.stderr and not list(tmp_path.iterdir())
