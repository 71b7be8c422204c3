"""upgrade_cases.py: the calls for the vectors; upgrade_vectors.py describes how they are taken.

name -> [(after, METHOD, PARAMETER...)]

`after` is the time of a call after the previous one, in microseconds. "$1" is a placeholder for the first slot or reservation
of the case. The policies are those of vectors/*/ratelimitd.yaml.
"""

MS, S, M, H = 1000, 10**6, 60 * 10**6, 3600 * 10**6


def windowed(policy, limit, window_us, key="k"):
    """Charges up to the limit and beyond, peeks and refunds, and does it again after some time."""
    return [
        (0, "peek", policy, key),
        (0, "check", policy, key),
        (7 * MS, "check", policy, key, 2),
        (window_us // 10 + 1, "explain", policy, key, 1),
        (0, "check", policy, key, limit),
        (0, "check", policy, key, {"at_most": limit}),
        (1, "check", policy, key),
        (0, "explain", policy, key),
        (3, "refund", policy, key, 1),
        (0, "check", policy, key, {"cost": 1, "request_id": "once"}),
        (5, "check", policy, key, {"cost": 1, "request_id": "once"}),
        (0, "check_many", [[policy, key], [policy, "other"], [policy, key, 0]]),
        (window_us // 2, "peek", policy, key, 1),
        (window_us // 2 + MS, "check", policy, key),
        (2 * window_us, "check", policy, key, 2),
        (0, "refund", policy, key, limit + 5),
        (0, "check", policy, "\u00fcber {k}:" + "x" * 20),
        (0, "reset", policy, key),
        (0, "peek", policy, key),
    ]


def preset(policy):
    return [
        (0, "peek", policy, "k"),
        (0, "check", policy, "k"),
        (5 * MS, "check", policy, "k"),
        (1, "explain", policy, "k"),
        (3 * MS, "check", policy, "k"),
        (0, "check", policy, "k", 0),
        (0, "peek", policy, "k", 1),
        (0, "check", policy, "other"),
        (0, "reset", policy, "k"),
        (0, "check", policy, "k"),
    ]


def reserved(policy, key="k"):
    """Settled with less, with more, with the same amount, twice, cancelled, ended; each also from the recorded text."""
    return [
        (0, "check", policy, key),
        (11, "reserve", policy, key, 4, {"ttl_ms": 600_000}),
        (1 * MS, "reserve", policy, key, 2),
        (0, "reserve", policy, key, 1, {"ttl_ms": 86_400_000}),
        (0, "reserve", policy, key, 0),
        (0, "reserve", policy, key, 300),
        (17, "settle", "$1", 1),
        (0, "settle", "$1", 3),
        (1, "settle", "$2", 5),
        (0, "peek", policy, key),
        (0, "cancel", "$3"),
        (0, "settle", "$4", 0),
        (0, "reserve", policy, key, 3, {"ttl_ms": 1000}),
        (2 * S, "peek", policy, key),
        (0, "refund", policy, key, 1),
        (0, "settle", "$5", 2),
        (0, "reserve", policy, key, 2, {"ttl_ms": 1000}),
        (62 * S, "settle", "$6", 1),
        (0, "settle", "$1", 1),
    ]


SETTINGS = [
    {"algorithm": "fixed_window", "limit": 5, "window": "1h"},
    {"window": "1h", "limit": "5", "algorithm": "fixed_window"},  # the same one
    {"algorithm": "fixed_window", "limit": 5, "window": "60m"},  # another one
    {"algorithm": "fixed_window", "limit": 5, "window": "1h", "start": "first_hit"},
    {"algorithm": "fixed_window", "limit": 5, "window": "1h", "phase": True},
    {"algorithm": "fixed_window", "limit": 5, "window": "1h", "count_denied": True, "shadow": True},
    {"algorithm": "calendar_window", "limit": 5, "window": "day"},
    {"algorithm": "sliding_log", "limit": 5, "window": "1h"},
    {"algorithm": "sliding_counter", "limit": 5, "window": "1h", "deadline": "29s", "on_failure": "allow"},
    {"algorithm": "token_bucket", "limit": 5, "window": "1m", "burst": 7},
    {"algorithm": "gcra", "limit": 5, "window": "1m", "burst": 7},
    {"algorithm": "leaky_bucket", "limit": 5, "window": "1m", "max_wait": "2s"},
    {"algorithm": "concurrency", "limit": 5, "slot_ttl": "12h"},
    {"unlimited": True},
    {"limits": [{"name": "a", "algorithm": "token_bucket", "limit": 5, "window": "1s"},
                {"name": "b", "algorithm": "sliding_log", "limit": 9, "window": "1h"}], "idempotency_window": "5m"},
    {"key_format": "{t}:{u}", "algorithm": "fixed_window", "limit": 5, "window": "1h", "by": ["t"],
     "overrides": [{"match": "*:vip", "limit": 50}]},
    {"algorithm": "fixed_window", "limit": 5, "window": "1h",
     "candidate": [{"name": "c", "algorithm": "token_bucket", "limit": 2, "window": "1m"}]},
]

CASES = {
    "policies": [(0, "policies"), (0, "stats")],
    "fixed_window": windowed("fixed", 5, H),
    "fixed_window with a phase": windowed("phase", 5, H),
    "fixed_window counting denials": windowed("counting", 3, M),
    "first_hit": windowed("first", 5, 90 * S),
    "first_hit counting denials": windowed("counting-first", 3, M),
    "calendar_window of days": windowed("day", 5, 24 * H),
    "calendar_window of hours": windowed("hour", 5, H),
    "sliding_log": windowed("log", 6, 100 * S),
    "sliding_log counting denials": windowed("counting-log", 3, 100 * S),
    "sliding_counter": windowed("counter", 10, M),
    "token_bucket": windowed("bucket", 20, M),
    "gcra": windowed("odd", 7, 3 * S),
    "leaky_bucket": [
        (0, "check", "shaped", "k"),
        (1, "check", "shaped", "k", 2),
        (0, "check", "shaped", "k", {"max_wait_ms": 3000}),
        (0, "check", "shaped", "k", {"max_wait_ms": 0}),
        (0, "explain", "shaped", "k"),
        (0, "peek", "shaped", "k"),
        (0, "check", "shaped", "k", {"at_most": 2, "request_id": "r"}),
        (1 * S, "check", "shaped", "k", {"at_most": 2, "request_id": "r"}),
        (0, "refund", "shaped", "k", 1),
        (4 * S, "explain", "shaped", "k", 2),
        (20 * S, "check", "shaped", "k"),
    ],
    "none and free": [
        (0, "check", "none", "k"), (0, "peek", "none", "k"), (0, "explain", "none", "k"), (0, "reset", "none", "k"),
        (0, "check", "free", "k", 7), (0, "peek", "free", "k"), (0, "explain", "free", "k"),
        (0, "reserve", "free", "k", 3), (0, "settle", "$1", 2),
    ],
    "three limits": windowed("three", 3, H),
    "parts of keys": [
        (0, "check", "tenant", "acme:1", 2),
        (0, "check", "tenant", "acme:2", 2),
        (0, "check", "tenant", "acme:2", {"cost": 2, "request_id": "r:1"}),
        (1 * S, "check", "tenant", "acme:2", {"cost": 2, "request_id": "r:1"}),
        (0, "check", "tenant", "acme:3", 3),
        (0, "explain", "tenant", "acme:3", 2),
        (0, "reset", "tenant", "acme:1"),
        (0, "check", "regional", "eu/acme/1", 2),
        (0, "check", "regional", "eu/other/1", 2),
        (0, "explain", "regional", "eu/acme/1"),
        (0, "check", "everybody", "t-a:x", 5),
        (0, "check", "everybody", "t-b:y", 5),
        (0, "explain", "everybody", "t-b:y"),
        (0, "reserve", "tenant", "acme:9", 1), (0, "settle", "$1", 0),
    ],
    "overrides": [
        (0, "check", "search", "user:42", 5), (0, "explain", "search", "user:42", 5),
        (0, "check", "search", "user:43", 2), (0, "check", "search", "slow:1"), (0, "check", "search", "slow:1"),
        (0, "explain", "search", "slow:1"), (0, "check", "search", "partner:1", 99), (0, "explain", "search", "partner:1"),
        (0, "reserve", "search", "user:42", 3), (0, "settle", "$1", 1),
    ],
    "shadow": [
        (0, "check", "quiet", "k", 2), (0, "check", "quiet", "k"), (0, "peek", "quiet", "k", 1), (0, "explain", "quiet", "k"),
        (0, "reserve", "quiet", "k", 1), (0, "settle", "$1", 1), (0, "check_all", [["quiet", "k"], ["fixed", "k"]]),
    ],
    "candidate": [
        (0, "check", "trial", "k"), (0, "check", "trial", "k"), (0, "check", "trial", "k"),
        (0, "check", "trial", "k", {"at_most": 3, "request_id": "r"}),
        (10 * S, "check", "trial", "k", {"at_most": 3, "request_id": "r"}),
        (0, "explain", "trial", "k"), (50 * S, "check", "trial", "k"), (0, "check", "trial", "other", 2),
        (0, "check_all", [["trial", "third"], ["fixed", "k"]]), (0, "policies"), (0, "reset", "trial", "k"),
    ],
    "check_all": [
        (0, "check_all", [["fixed", "a", 2], ["bucket", "b"], ["three", "c", 2]]),
        (0, "check_all", [["fixed", "a"], ["three", "c", 2], ["free", "k"]]),
        (0, "check_all", [["fixed", "a"], ["log", "l", 2]], {"request_id": "all-1"}),
        (1 * S, "check_all", [["fixed", "a"], ["log", "l", 2]], {"request_id": "all-1"}),
        (0, "check_all", [["fixed", "a"], ["fixed", "b:3:c"]], {"request_id": "all-1"}),
        (0, "check", "log", "l", {"request_id": "all-1"}),
        (61 * S, "check_all", [["fixed", "a"], ["log", "l", 2]], {"request_id": "all-1"}),
    ],
    "inline policies": [(0, "check", settings, "a:1") for settings in SETTINGS[:12]] +
                       [(0, "acquire", SETTINGS[12], "a:1")] +
                       [(0, "check", settings, "a:1", {"request_id": "r"}) for settings in SETTINGS[13:]] +
                       [(0, "explain", settings, "a:1") for settings in SETTINGS] +
                       [(0, "refund", SETTINGS[0], "a:1", 1), (0, "reset", SETTINGS[9], "a:1")],
    "slots": [
        (0, "peek", "slots", "k"), (0, "acquire", "slots", "k"), (1 * S, "acquire", "slots", "k"),
        (0, "acquire", "slots", "k"), (0, "explain", "slots", "k"), (0, "peek", "slots", "k", 1),
        (0, "release", "$1"), (0, "release", "$1"), (5 * S, "acquire", "slots", "k"), (0, "acquire", "both", "k"),
        (0, "acquire", "both", "k"), (0, "acquire", "both", "k"), (0, "release", "$4"), (0, "explain", "both", "k"),
        (12 * H, "peek", "slots", "k"), (0, "acquire", "slots", "k"), (0, "reset", "slots", "k"),
    ],
    "reservations of a fixed_window": reserved("held-fixed"),
    "reservations of a first_hit window": reserved("held-first"),
    "reservations of a calendar_window": reserved("held-day"),
    "reservations of a sliding_log": reserved("held-log"),
    "reservations of a sliding_counter": reserved("held-counter"),
    "reservations of a token_bucket": reserved("owing"),
    "reservations of several limits": reserved("owing-pair", "key:with:colons"),
    "failure answers without Redis": [
        (0, "check", "open", "k"), (0, "check", "fixed", "k"), (0, "check", "three", "k"), (0, "check", "quiet", "k"),
        (0, "peek", "open", "k"), (0, "reserve", "open", "k", 2, {"ttl_ms": 5000}), (0, "settle", "$1", 1),
        (0, "cancel", "$1"), (0, "check", "free", "k"), (0, "check", "none", "k"),
    ],
    **{f"compat {name}": preset(name)
       for name in ("old-start", "old-rlaas", "old-sliding", "old-first", "old-window", "old-log")},
}
