"""test_watching.py: deploy/prometheus: the alert rules, their tests, and the dashboard, on a real Prometheus; and what docs/operate.md
says about each alert."""

import json
import os
import re
import subprocess
import sys
from collections import Counter

import pytest
import yaml

from harness import ROOT, build_dir, eventually
from http_client import ADMIN, ask, port_of
from http_metrics import metrics
from test_prometheus import PROGRAMS, Prometheus

sys.path.insert(0, str(ROOT / "tests" / "lint"))
from drift import anchors_of  # noqa: E402

DEPLOY = ROOT / "deploy" / "prometheus"
RULES = [rule for group in yaml.safe_load((DEPLOY / "ratelimitd.rules.yml").read_text())["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((DEPLOY / "ratelimitd.dashboard.json").read_text())
OPERATE = (ROOT / "docs" / "operate.md").read_text()
FOREIGN = {"up", "node_textfile_mtime_seconds"}  # of Prometheus and of node_exporter
METRIC = re.compile(r"\b(?:ratelimitd|process|node)_[a-z_]+\b|\bup\b")
POLICIES = """defaults: {deadline: 10s}
policies:
  login: {algorithm: fixed_window, limit: 5, window: 1h}
  api:
    limits:
      - {name: minute, algorithm: token_bucket, limit: 3, window: 1h}
      - {name: day, algorithm: calendar_window, limit: 100, window: day}
    candidate: [{name: x, algorithm: fixed_window, limit: 2, window: 1h}]
  quiet: {algorithm: fixed_window, limit: 1, window: 1h, shadow: true}
"""


def promtool(*arguments):
    done = subprocess.run([PROGRAMS / "promtool", *arguments], capture_output=True, text=True, timeout=50, cwd=DEPLOY)
    return done.returncode, done.stdout + done.stderr


def queries():
    """(where, expression) of everything that the dashboard asks."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            yield f"{panel['title']} {target['refId']}", target["expr"]
    for annotation in DASHBOARD["annotations"]["list"]:
        yield annotation["name"], annotation["expr"]


def variables():
    """(name, series, label) of the variables that list a label's values."""
    for one in DASHBOARD["templating"]["list"]:
        if one["type"] == "query":
            series, label = re.fullmatch(r"label_values\((.*), (\w+)\)", one["query"]["query"]).groups()
            yield one["name"], series, label


def filled(expression):
    """As Grafana sends it, with everything selected."""
    text = expression.replace("$__rate_interval", "30s")
    for name, _, _ in variables():
        text = text.replace(f"${name}", ".*")
    assert "$" not in text, expression
    return text


# ---- documents ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_says_what_to_do_as_the_page_for_operators_does(rule):
    annotations = rule["annotations"]
    page, _, anchor = annotations["runbook"].partition("#")
    assert page == "docs/operate.md" and anchor == rule["alert"].lower() and anchor in anchors_of(ROOT / page)
    section = re.search(rf"^### {rule['alert']}$(.*?)^##", OPERATE, re.M | re.S)[1]
    assert " ".join(annotations["action"].split()) in " ".join(section.split())
    assert rule["labels"]["severity"] in ("critical", "warning", "info") and "{{ $labels.instance }}" in annotations["summary"]


def test_the_page_for_operators_has_no_alert_that_there_is_not():
    section = re.search(r"^## When an alert fires$(.*?)^## ", OPERATE, re.M | re.S)[1]
    assert re.findall(r"^### (\w+)$", section, re.M) == [rule["alert"] for rule in RULES]


def test_every_metric_of_the_rules_and_of_the_dashboard_is_on_the_page(ratelimitd, redis):
    """Drift: a counter that is renamed must not leave a rule that never fires."""
    daemon = ratelimitd(ADMIN + POLICIES, redis=redis)
    with daemon.client() as client:
        client.check("login", "k")
    page = metrics(daemon)
    on_page = {series for series, _ in page.series}
    texts = [rule["expr"] for rule in RULES] + [text for _, text in queries()] + [series for _, series, _ in variables()]
    used = {name for text in texts for name in METRIC.findall(text)}
    assert len(used) > 25 and used - FOREIGN - on_page == set()
    tested = set(METRIC.findall((DEPLOY / "ratelimitd.tests.yml").read_text()))
    assert {name for rule in RULES for name in METRIC.findall(rule["expr"])} <= tested


ANSWERS = {  # what a command of "Five questions" must show of a daemon with a past
    "ping": r"^pong$",
    "version": r"^uptime .*^configuration +read .* ago$",
    "stats": r"^checks +26$.*^denied +[1-9].*^failure answers +[1-9]\d* .*^redis +",
    "stats --all | grep -E '^check_p(50|99)_us'": r"^check_p50_us +[1-9]\d*$.*^check_p99_us +[1-9]",
    "policies": r"^login +fixed_window, 6 per 1h +local +\d+ +3$",
    "metrics | grep '^ratelimitd_limit_denials_total'": r'policy="api",limit="minute"} 2$.*policy="api",limit="day"} 0$',
    "explain api acme": r"^would be allowed\b",
    "stats --all | grep -E '^(check|queue|store|tick)_p99_us'": r"^check_p99_us +[1-9].*^queue_p99_us +.*^store_p99_us +[1-9].*^tick_p99_us +[1-9]",
    "stats --all | grep -E '^reload'": r"^reloads +1$.*^reload_failures +1$",
}


# ---- promtool -----------------------------------------------------------------------------------------------------


def test_the_checker_of_prometheus_accepts_the_rules():
    status, text = promtool("check", "rules", "ratelimitd.rules.yml")
    assert status == 0 and f"{len(RULES)} rules found" in text, text


def test_alertmanager_accepts_the_rules_by_which_a_cause_keeps_its_consequences_quiet():
    text = (DEPLOY / "alertmanager.yml").read_text()
    amtool = ROOT / ".deps" / "prometheus" / "usr" / "bin" / "amtool"
    done = subprocess.run([amtool, "check-config", DEPLOY / "alertmanager.yml"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0 and f"{len(yaml.safe_load(text)['inhibit_rules'])} inhibit rules" in done.stdout, done.stdout + done.stderr
    assert set(re.findall(r"Ratelimitd[A-Z]\w+", text)) <= {rule["alert"] for rule in RULES}


def test_each_alert_fires_and_does_not_fire_in_the_tests_of_the_rules():
    status, text = promtool("test", "rules", "ratelimitd.tests.yml")
    assert status == 0, text
    seen = Counter()
    for test in yaml.safe_load((DEPLOY / "ratelimitd.tests.yml").read_text())["tests"]:
        for case in test["promql_expr_test"]:
            name = re.search(r'alertname="(\w+)"', case["expr"])[1]
            seen[name, bool(case["exp_samples"])] += 1
    assert seen == Counter({(rule["alert"], fires): 1 for rule in RULES for fires in (True, False)})


def test_what_ratelimitctl_prints_passes_the_checker_of_prometheus(ratelimitd, redis):
    daemon = ratelimitd(POLICIES, redis=redis)
    page = daemon.ctl("metrics", check=True).stdout.encode()
    done = subprocess.run([PROGRAMS / "promtool", "check", "metrics"], input=page, capture_output=True, timeout=30)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


# ---- Prometheus ---------------------------------------------------------------------------------------------------


@pytest.fixture
def watched_daemon(ratelimitd, start_redis, tmp_path):
    """A daemon with a past: decisions, denials, failure answers, a reload and a refused one; and the Prometheus that saw it."""
    server = start_redis()
    daemon = ratelimitd(ADMIN + POLICIES, redis=server)
    prometheus = Prometheus(tmp_path, port_of(daemon), DEPLOY / "ratelimitd.rules.yml")
    try:
        eventually(prometheus.is_scraping, "Prometheus scrapes", 60)
        with daemon.client() as client:
            for i in range(8):
                client.check("login", "k")
                client.check("api", f"k{i % 2}")
                client.check("quiet", "k")
            server.stop()
            eventually(lambda: metrics(daemon).value("ratelimitd_redis_up") == 0, "the daemon notices")
            client.check("login", "new")
            server.start()
            daemon.configure(ADMIN + POLICIES.replace("limit: 5", "limit: 6"))
            daemon.reload()
            daemon.wait_for_log("reload: .* read again")
            daemon.configure(ADMIN + "policies: {bad: {}}\n")
            daemon.reload()
            daemon.wait_for_log("is not correct")
            eventually(lambda: metrics(daemon).value("ratelimitd_redis_up") == 1, "Redis is back", 30)
            client.check("login", "k")
        yield daemon, prometheus
    finally:
        prometheus.kill()


def test_every_query_of_the_dashboard_returns_data(watched_daemon):
    daemon, prometheus = watched_daemon
    assert len(list(queries())) > 30
    for where, expression in queries():
        # changes() > 0 of an annotation is there when something has changed between two scrapes
        text = filled(expression).removesuffix(" > 0")
        eventually(lambda text=text: prometheus.query(text), f"{where} returns data: {text}", 30)
    for name, series, label in variables():
        values = {one[label] for one in prometheus.series(filled(series))}
        assert values and "" not in values, name
    assert ask(daemon, "/livez").status == 200


def test_each_command_of_the_five_questions_gives_its_answer(watched_daemon):
    daemon, _ = watched_daemon
    section = re.search(r"^## Five questions$(.*?)^## ", OPERATE, re.M | re.S)[1]
    commands = re.search(r"^```sh\n(.*?)^```", section, re.M | re.S)[1].splitlines()
    assert [command.removeprefix("ratelimitctl ") for command in commands] == list(ANSWERS)
    env = {**os.environ, "RATELIMIT_SOCKET": daemon.socket, "PATH": f"{build_dir() / 'bin'}:{os.environ['PATH']}"}
    for command, expected in zip(commands, ANSWERS.values()):
        done = subprocess.run(["sh", "-c", command], env=env, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0 and re.search(expected, done.stdout, re.M | re.S), (command, done.stdout, done.stderr)


def test_prometheus_runs_every_alert_and_the_refused_reload_fires(watched_daemon):
    _, prometheus = watched_daemon

    def rules():
        return {rule["name"]: rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]}

    eventually(lambda: all(rule["health"] == "ok" for rule in rules().values()), "every rule is evaluated", 30)
    assert set(rules()) == {rule["alert"] for rule in RULES}
    eventually(lambda: rules()["RatelimitdReloadRefused"]["state"] in ("pending", "firing"), "the alert sees the refused reload", 30)
    assert rules()["RatelimitdReloadRefused"]["alerts"][0]["annotations"]["summary"].startswith("The configuration of ratelimitd on 127.0.0.1:")
