"""test_prometheus.py: Prometheus itself reads the page of metrics: its checker, and its server. `./dev test operation` unpacks it."""

import json
import os
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from harness import ROOT, Process, eventually, free_port
from http_client import ADMIN, ask, port_of

PROGRAMS = Path(os.environ.get("DEPS", ROOT / ".deps")) / "prometheus" / "usr" / "bin"
pytestmark = pytest.mark.skipif(not (PROGRAMS / "promtool").exists(), reason="./dev test operation unpacks Prometheus")
POLICIES = ADMIN + "inline: {allow: true}\n" + """policies:
  login: {algorithm: fixed_window, limit: 5, window: 1h}
  api:
    limits:
      - {name: minute, algorithm: token_bucket, limit: 3, window: 1h}
      - {name: day, algorithm: calendar_window, limit: 100, window: day}
    candidate: [{name: x, algorithm: fixed_window, limit: 2, window: 1h}]
  open: {unlimited: true}
"""


def used(daemon, connect):
    client = connect(daemon)
    for i in range(20):
        client.check("login", "k")
        client.check("api", f"k{i}")
        client.check({"algorithm": "fixed_window", "limit": 1, "window": "1h"}, "k")
    return client


@pytest.mark.parametrize("has_redis", [False, True], ids=["memory", "redis"])
def test_the_checker_of_prometheus_finds_nothing(ratelimitd, connect, redis, has_redis):
    daemon = ratelimitd(POLICIES, redis=redis if has_redis else None)
    used(daemon, connect)
    page = ask(daemon, "/metrics").body
    done = subprocess.run([PROGRAMS / "promtool", "check", "metrics"], input=page, capture_output=True, timeout=30)
    assert (done.returncode, done.stdout + done.stderr) == (0, b""), done.stdout + done.stderr


class Prometheus(Process):
    def __init__(self, place, target, rules=None):
        super().__init__()
        self.port = free_port()
        (place / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
            f"rule_files: [{rules or ''}]\n"
            f"scrape_configs: [{{job_name: ratelimitd, static_configs: [{{targets: ['127.0.0.1:{target}']}}]}}]\n")
        self.spawn([PROGRAMS / "prometheus", f"--config.file={place}/prometheus.yml", f"--storage.tsdb.path={place}/data",
                    f"--web.listen-address=127.0.0.1:{self.port}"])

    def ask(self, path, **query):
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def query(self, expression):
        """The value of each series."""
        return [float(one["value"][1]) for one in self.ask("query", query=expression)["result"]]

    def series(self, selector):
        """The labels of each series."""
        return self.ask("series", **{"match[]": selector})

    def is_scraping(self):
        try:
            return [target["health"] for target in self.ask("targets")["activeTargets"]] == ["up"]
        except OSError:
            return False


def test_prometheus_scrapes_the_daemon_and_answers_from_its_numbers(ratelimitd, connect, tmp_path):
    daemon = ratelimitd(POLICIES)
    used(daemon, connect)
    prometheus = Prometheus(tmp_path, port_of(daemon))
    try:
        eventually(prometheus.is_scraping, "Prometheus scrapes", 60)
        target = prometheus.ask("targets")["activeTargets"][0]
        assert target["lastError"] == ""
        eventually(lambda: prometheus.query('ratelimitd_decisions_total{policy="login",result="denied"}') == [15],
                   "the decisions have arrived")
        assert prometheus.query("sum(ratelimitd_decisions_total)") == [60]
        assert prometheus.query("ratelimitd_check_duration_seconds_count") == [60]
        assert prometheus.query("histogram_quantile(0.99, ratelimitd_check_duration_seconds_bucket)")[0] > 0
        assert prometheus.query('ratelimitd_limit_units{limit="minute"}') == [3]
    finally:
        prometheus.kill()
