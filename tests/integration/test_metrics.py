"""test_metrics.py: the page of metrics: every counter once, decisions as they were sent, and labels from the configuration alone."""

import re

from harness import eventually
from http_client import ADMIN
from http_metrics import metrics

POLICIES = """policies:
  login: {algorithm: fixed_window, limit: 5, window: 1h}
  api:
    limits:
      - {name: minute, algorithm: fixed_window, limit: 3, window: 1h}
      - {name: day, algorithm: sliding_log, limit: 100, window: 24h}
    candidate: [{name: x, algorithm: fixed_window, limit: 2, window: 1h}]
  quiet: {algorithm: fixed_window, limit: 1, window: 1h, shadow: true}
  open: {unlimited: true}
"""
# A labelled family of its own takes the place of these on the page.
BY_LABEL = {"shadow_denied", "requests", "request_errors"}
FAMILIES = {"failure_answers": ("reason", ["down", "breaker", "deadline", "overload", "store_error"]),
            "failure_choices": ("answer", ["allow", "deny", "local", "error"])}


def test_every_counter_of_stats_is_on_the_page_exactly_once(ratelimitd, connect):
    daemon = ratelimitd(ADMIN + POLICIES)
    page = metrics(daemon)
    in_family = {f"failure_{value}" for _, values in FAMILIES.values() for value in values}
    for name in connect(daemon).call("stats"):
        if name.endswith("_us") or name in BY_LABEL | in_family:
            continue
        kinds = [page.types.get(f"ratelimitd_{name}_total"), page.types.get(f"ratelimitd_{name}")]
        assert kinds in (["counter", None], [None, "gauge"]), name
    for family, (label, values) in FAMILIES.items():
        assert page.values(f"ratelimitd_{family}_total", label) == values or \
            set(page.values(f"ratelimitd_{family}_total", label)) == set(values)
    for name in BY_LABEL:
        assert page.types[f"ratelimitd_{name}_total"] == "counter"


def test_decisions_on_the_page_are_those_that_were_sent(ratelimitd, connect):
    daemon = ratelimitd(ADMIN + POLICIES)
    client = connect(daemon)
    for _ in range(7):
        client.check("login", "k")
        client.check("quiet", "k")
        client.check("open", "k", 3)
    for _ in range(4):
        client.check("api", "k")
    client.call("check_all", [["login", "other"], ["api", "k"]])  # denied as a whole, by api
    client.call("check_many", [["login", "third", 2], ["login", "third"]])
    client.call("peek", "login", "k")

    page = metrics(daemon)

    def decisions(policy, result):
        return page.sum("ratelimitd_decisions_total", policy=policy, result=result)

    assert [decisions(policy, "allowed") for policy in ("login", "api", "quiet", "open")] == [7, 3, 7, 7]
    assert [decisions(policy, "denied") for policy in ("login", "api", "quiet", "open")] == [3, 2, 0, 0]
    stats = client.call("stats")
    assert page.sum("ratelimitd_decisions_total", result="allowed") == stats["allowed"] == page.value("ratelimitd_allowed_total")
    assert page.sum("ratelimitd_decisions_total", result="denied") == stats["denied"]
    assert page.value("ratelimitd_decisions_total", policy="open", result="allowed", source="unlimited") == 7
    assert page.value("ratelimitd_limit_denials_total", policy="login", limit="login") == 2
    assert page.value("ratelimitd_limit_denials_total", policy="api", limit="minute") == 2
    assert page.value("ratelimitd_limit_denials_total", policy="api", limit="day") == 0
    assert page.value("ratelimitd_granted_units_total", policy="open") == 21
    assert page.value("ratelimitd_granted_units_total", policy="login") == 8
    assert page.value("ratelimitd_near_limit_total", policy="login") == 1
    assert page.value("ratelimitd_near_limit_total", policy="quiet") == 1  # what it would deny is beyond the limit
    assert page.value("ratelimitd_shadow_denied_total", policy="quiet") == stats["shadow_denied"] == 6
    assert page.value("ratelimitd_requests_total", method="check") == 25
    assert page.sum("ratelimitd_requests_total") + 1 == stats["requests"]
    assert page.value("ratelimitd_check_duration_seconds_count") == stats["allowed"] + stats["denied"]


def test_a_candidate_has_both_verdicts(ratelimitd, connect):
    daemon = ratelimitd(ADMIN + POLICIES)
    client = connect(daemon)
    for _ in range(5):
        client.check("api", "k")
    page = metrics(daemon)
    verdicts = {(candidate, enforced): page.value("ratelimitd_candidate_checks_total", policy="api", candidate=candidate,
                                                  enforced=enforced)
                for candidate in ("allowed", "denied") for enforced in ("allowed", "denied")}
    assert verdicts == {("allowed", "allowed"): 2, ("denied", "allowed"): 1, ("denied", "denied"): 2, ("allowed", "denied"): 0}


def test_limits_are_on_the_page_as_they_are_configured(ratelimitd):
    page = metrics(ratelimitd(ADMIN + POLICIES))
    assert page.value("ratelimitd_limit_units", policy="api", limit="minute", algorithm="fixed_window") == 3
    assert page.value("ratelimitd_limit_window_seconds", policy="api", limit="day", algorithm="sliding_log") == 86400
    version = page.values("ratelimitd_build_info", "version")[0]
    assert re.match(r"0\.1\.0(-git\.\w+)?$", version)
    assert page.value("ratelimitd_build_info", version=version, protocol="1", store="memory",
                      libuv=page.values("ratelimitd_build_info", "libuv")[0],
                      hiredis=page.values("ratelimitd_build_info", "hiredis")[0]) == 1


def test_names_that_clients_write_are_no_labels(ratelimitd, connect):
    daemon = ratelimitd(ADMIN + "inline: {allow: true, max_policies: 2}\n" + POLICIES)
    client = connect(daemon)
    for i in range(8):
        client.check({"algorithm": "fixed_window", "limit": 1, "window": f"{i + 1}h", "name": f"mine{i}"}, "secret-key")
        client.check({"algorithm": "fixed_window", "limit": 1, "window": f"{i + 1}h", "name": f"mine{i}"}, "secret-key")
    client.check("login", "secret-key")
    page = metrics(daemon)
    assert page.values("ratelimitd_decisions_total", "policy") == ["login", "api", "quiet", "open", "(inline)"]
    assert page.sum("ratelimitd_decisions_total", policy="(inline)", result="allowed") == 8  # those given up count, too
    assert page.value("ratelimitd_limit_denials_total", policy="(inline)", limit="(inline)") == 8
    assert "mine" not in page.text and "secret-key" not in page.text and "inline-" not in page.text


def test_policies_beyond_the_cap_are_summed(ratelimitd, connect):
    def many(n_named):
        policies = "".join(f"  p{i}: {{algorithm: fixed_window, limit: 1, window: 1h}}\n" for i in range(10))
        return f'admin: {{listen: "127.0.0.1:0", metrics_policies: {n_named}}}\npolicies:\n{policies}'

    daemon = ratelimitd(many(3))
    client = connect(daemon)
    for i in range(10):
        client.check(f"p{i}", "k")
        client.check(f"p{i}", "k")
    page = metrics(daemon)
    assert page.values("ratelimitd_granted_units_total", "policy") == ["p0", "p1", "p2", "(other)", "(inline)"]
    assert page.value("ratelimitd_granted_units_total", policy="(other)") == 7
    assert page.value("ratelimitd_limit_denials_total", policy="(other)", limit="(other)") == 7

    daemon.configure(many(10))
    daemon.reload()
    daemon.wait_for_log("reload: .* read again")
    page = metrics(daemon)
    assert page.value("ratelimitd_granted_units_total", policy="(other)") == 7  # and p9 begins at 0: each is there once
    assert page.value("ratelimitd_granted_units_total", policy="p9") == 0
    client.check("p9", "k")
    page = metrics(daemon)
    assert page.sum("ratelimitd_decisions_total", policy="p9") == 1
    assert page.value("ratelimitd_limit_denials_total", policy="p9", limit="p9") == 1
    assert page.sum("ratelimitd_decisions_total") == 21

    daemon.configure(many(3))
    daemon.reload()
    eventually(lambda: len(re.findall("reload: .* read again", daemon.text())) == 2, "the second reload")
    client.check("p9", "k")
    page = metrics(daemon)
    assert page.sum("ratelimitd_decisions_total", policy="(other)") == 15


def test_a_reload_ends_the_series_of_a_removed_policy_and_no_other(ratelimitd, connect):
    daemon = ratelimitd(ADMIN + POLICIES)
    client = connect(daemon)
    for _ in range(6):
        client.check("login", "k")
        client.check("api", "k")
    daemon.configure(ADMIN + POLICIES.replace("  login: {algorithm: fixed_window, limit: 5", "  logins: {algorithm: fixed_window, limit: 5")
                     .replace("name: day", "name: daily"))
    daemon.reload()
    daemon.wait_for_log("reload: .* read again")
    client.check("api", "k")
    page = metrics(daemon)
    assert page.values("ratelimitd_granted_units_total", "policy") == ["logins", "api", "quiet", "open", "(inline)"]
    assert page.value("ratelimitd_limit_denials_total", policy="api", limit="minute") == 4
    assert page.values("ratelimitd_limit_denials_total", "limit") == ["logins", "minute", "daily", "quiet", "(inline)"]
    assert page.value("ratelimitd_allowed_total") == 8
    assert page.value("ratelimitd_config_last_reload_successful") == 1

    daemon.configure(ADMIN + "policies: {bad: {}}\n")
    daemon.reload()
    daemon.wait_for_log("is not correct")
    page = metrics(daemon)
    assert page.value("ratelimitd_config_last_reload_successful") == 0
    assert page.sum("ratelimitd_decisions_total", policy="api") == 7


def test_the_times_of_start_and_reload_are_the_same_on_every_page(ratelimitd):
    """They were some microseconds apart, so that Prometheus' changes() saw a start at each scrape."""
    daemon = ratelimitd(ADMIN + POLICIES)
    names = ["ratelimitd_start_time_seconds", "process_start_time_seconds", "ratelimitd_config_last_reload_success_timestamp_seconds"]
    assert len({tuple(page.value(name) for name in names) for page in (metrics(daemon) for _ in range(20))}) == 1


def test_with_redis_each_stage_and_each_source_is_counted(ratelimitd, redis, connect):
    daemon = ratelimitd(ADMIN + "defaults: {deadline: 10s}\n" + POLICIES, redis=redis)
    client = connect(daemon)
    for _ in range(8):
        client.check("login", "k")
    page = metrics(daemon)
    by_source = {source: page.sum("ratelimitd_decisions_total", policy="login", source=source)
                 for source in page.values("ratelimitd_decisions_total", "source")}
    assert by_source["redis"] + by_source["deny_cache"] == 8 and by_source["deny_cache"] >= 1
    assert page.value("ratelimitd_check_duration_seconds_count") == 8
    assert page.value("ratelimitd_queue_duration_seconds_count") == by_source["redis"]
    assert page.value("ratelimitd_store_duration_seconds_count") == by_source["redis"]
    assert abs(page.value("ratelimitd_redis_clock_offset_seconds")) < 30  # of one machine; a slow round trip moves it

    redis.stop()
    eventually(lambda: metrics(daemon).value("ratelimitd_redis_up") == 0, "the daemon notices")
    client.check("login", "new")
    page = metrics(daemon)
    assert page.value("ratelimitd_decisions_total", policy="login", result="allowed", source="local") == 1
    assert page.sum("ratelimitd_failure_answers_total") == page.value("ratelimitd_failure_choices_total", answer="local") == 1


def test_buckets_add_up_and_stats_have_quantiles(ratelimitd, connect):
    daemon = ratelimitd(ADMIN + POLICIES)
    client = connect(daemon)
    for i in range(50):
        client.check("open", f"k{i}")
    page = metrics(daemon)
    for family in [name for name, kind in page.types.items() if kind == "histogram"]:
        bounds = page.values(f"{family}_bucket", "le")
        counts = [page.value(f"{family}_bucket", le=le) for le in bounds]
        assert bounds[-1] == "+Inf" and len(bounds) == 15 and counts == sorted(counts)
        assert counts[-1] == page.value(f"{family}_count")
        assert [float(le) for le in bounds] == sorted(float(le) for le in bounds)
    stats = client.call("stats")
    names = [name for name in stats if re.fullmatch(r"(check|queue|store|tick)_(p50|p90|p99|p999|max)_us", name)]
    assert len(names) == 20
    assert 0 < stats["check_p50_us"] <= stats["check_p99_us"] <= stats["check_max_us"]
    assert stats["queue_max_us"] == 0
