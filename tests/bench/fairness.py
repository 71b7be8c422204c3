"""fairness.py: the service that a polite client gets next to one that floods. `./dev bench fairness` prints the tables,
`./dev bench --rows TEXT fairness` the rows whose "table: flood keys" contains TEXT: "stopped: check, 16 clients".

The polite client sends one check each 2 ms on a policy of its own, with a deadline of 20 ms. The flooder has as much in
flight as the documented caps let one connection have: 4096 requests, or check_many frames of 8000 checks. Other floods come
over many connections, or ask for work that weighs more than a check. Every row has its own daemon and Redis, so that no row
depends on the previous one.

"net" is a latency without the time in which the daemon or the client was runnable and waited for a core
(/proc/PID/schedstat). If daemon, Redis and clients share a few cores, this wait is most of a latency, and it does not
depend on the daemon. The waits of Redis for a core are included, and the time that the host of a virtual machine takes.

The last column shows whether a row reaches its figure: yes, only net, or no. No test asserts it.
"""

import json
import random
import statistics
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

from harness import Ratelimitd, Redis, eventually, program

DEADLINE_MS = 20
DEPTH = 4096  # caps.max_inflight_per_connection
FRAME = 8000  # checks in the longest message that caps.max_frame allows
N_KEYS = 10000
WARM_S = 0.7  # the flood alone, before the polite client comes
STOPPED_S, RUNNING_S = 0.4, 0.6  # of Redis in the rows that stop it; a stall ends the connection after 0.25 s
N_POLICIES = 100000  # of the reload
RELOAD_S = 2.5  # from one reload to the next
TABLES, APART = ("redis", "memory", "stopped"), ("reload", "cut")  # what `rows` may name
N_CUT_RUNS, N_CUTS, CUT_GAP_S = 100, 30, 0.01  # so that the cuts hit every point of the handshake
LEAST_SHARE = 99.9  # per cent decided by the store

# One letter each: 8000 checks have to fit a message.
CONFIG = f"""
defaults: {{deadline: {DEADLINE_MS}ms, on_failure: local}}
policies:
  p: {{algorithm: token_bucket, limit: 10000000, window: 10s}}
  c: {{algorithm: token_bucket, limit: 10000000, window: 10d}}
  a: {{algorithm: concurrency, limit: 2000, slot_ttl: 60s}}
  l: {{algorithm: sliding_log, limit: 10000, window: 60s}}
  s: {{algorithm: sliding_log, limit: 10000, window: 1s}}
""" + "".join(f"  x{i}: {{algorithm: token_bucket, limit: 100, window: 1m}}\n" for i in range(200))  # that `policies` lists


class Flood:
    """`checks` are those of a list; `polite` are the arguments of the polite client, where it is not the usual one."""

    def __init__(self, name, method, policy, keys, connections=1, depth=DEPTH, checks=FRAME, polite=()):
        self.name, self.keys, self.connections, self.polite = name, keys, connections, polite
        self.answer = checks if method == "check_many" else 1  # decisions in one
        self.arguments = ["-m", method, "-p", policy, "-k", keys, "-c", connections, "-d", depth, "-n", checks]


def floods():
    for keys in (1, N_KEYS):
        yield Flood("check", "check", "c", keys)
        yield Flood("check with request_id", "request_id", "c", keys)
        yield Flood("reserve", "reserve", "c", keys)
        yield Flood("acquire, release", "acquire", "a", keys)
        yield Flood("refund on logs", "refund", "l", keys)
        yield Flood(f"check_many of {FRAME}", "check_many", "c", keys, depth=1)
    yield Flood(f"check_many of {FRAME}, eight clients", "check_many", "c", N_KEYS, connections=8, depth=1)
    yield Flood("check, 16 clients", "check", "c", N_KEYS, connections=16)
    yield Flood("check of cost 1000 on logs", "cost", "s", 2000)
    yield Flood("check_all of 16, 64 clients", "check_all", "c", N_KEYS, connections=64, depth=DEPTH // 16, checks=16)
    yield Flood("check and reset in turns", "alternate", "c", N_KEYS)
    for method in ("policies", "stats", "metrics", "explain"):
        yield Flood(f"{method}, 100 clients", method, "c", N_KEYS, connections=100, depth=50)
    yield Flood("connect, ask and leave, 100 at once", "leave", "c", N_KEYS, connections=100)
    yield Flood("long messages, 800 clients, to a polite one", "long", "c", 1, connections=800, depth=10,
                polite=["-n", 60, "-b", 90, "-u", 10000])


def chosen(table, rows):
    """The floods of the table's rows that are asked for, by name and keys; None is the row without a flood."""
    named = [("none -", None)] + [(f"{flood.name} {flood.keys}", flood) for flood in floods()]
    return [(name, flood) for name, flood in named if rows in f"{table}: {name}"]


def unmatched(rows):
    """None if `rows` chooses a row, else what to write instead."""
    if any(chosen(table, rows) for table in TABLES) or any(rows in name for name in APART):
        return None
    names = "\n  ".join(name for name, _ in chosen("", ""))
    return (f"no row contains {rows!r}; rows are a part of \"table: flood keys\", such as \"stopped: check, 16\".\n"
            f"tables: {', '.join(TABLES)}; alone: {', '.join(APART)}; floods and keys:\n  {names}")


def start(daemon, *arguments):
    argv = [program("rl_flood"), "-s", daemon.socket, "-w", daemon.pid, "-l", DEADLINE_MS, *arguments]
    return subprocess.Popen(list(map(str, argv)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process):
    """Its output; if the daemon ended its connection, the reason."""
    output, errors = process.communicate(timeout=60)
    return json.loads(output) if process.returncode == 0 else {"ended": errors.strip()}


@contextmanager
def served(redis, config=CONFIG):
    """A daemon with its own Redis, or with the memory store."""
    server = Redis("redis") if redis else None
    daemon = Ratelimitd(config, redis=server)
    try:
        yield daemon, server
    finally:
        if server and server.running:
            server.resume()
        daemon.close()
        if server:
            server.close()


def stop_and_go(redis, until):
    while time.monotonic() < until:
        redis.pause()
        time.sleep(STOPPED_S)
        redis.resume()
        time.sleep(RUNNING_S)


def measure(flood, seconds, redis=True, stops=False):
    """One row: the polite client's figures and the flood's."""
    with served(redis) as (daemon, server):
        flooder = start(daemon, *flood.arguments, "-t", seconds + WARM_S) if flood else None
        time.sleep(WARM_S)
        polite = start(daemon, "-m", "polite", "-p", "p", "-t", seconds, *(flood.polite if flood else ()))
        if stops:
            stop_and_go(server, time.monotonic() + seconds)
        return finish(polite), finish(flooder) if flooder else None


# ---- tables -------------------------------------------------------------------------------------------------------


def ms(us):
    return f"{us / 1000:.1f}"


def verdict(is_met, is_met_net):
    return "yes" if is_met else "net" if is_met_net else "**no**"


def rate(flood, results):
    """Answers to the flood, if it reads any; each check of a check_many counts."""
    if not flood or not results[0]["answered"]:
        return "-"
    return f"{statistics.median(one['per_second'] for one in results) * flood.answer / 1000:.0f} k"


def middle(results, kind, figure):
    return statistics.median(one[kind][figure] for one in results)


def largest(results, kind):
    return max(one[kind]["max_us"] for one in results)


def ended(results):
    """The reason why a client was cut off, if one was."""
    return next((one["ended"] for one in results if one and "ended" in one), None)


def head(title, figure, *columns):
    print(f"\n### {title}\n\nTo reach: {figure}\n")
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))


def line(*cells):
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def next_to_floods(title, asked, rounds, seconds, redis, p99_ms, many_p99_ms):
    if not asked:
        return {}
    figure = f"{LEAST_SHARE} % of the polite client's checks decided by the store, p99 at most {p99_ms} ms"
    if many_p99_ms != p99_ms:
        figure += f" ({many_p99_ms} ms next to eight clients)"
    head(title, f"{figure}.", "flood", "keys", "decided by the store", "p50 ms", "p99 ms", "max ms", "p99 net", "max net",
         "answers to the flood/s", "reached")
    rows = {}
    for row, flood in asked:
        polite, flooded = zip(*(measure(flood, seconds, redis) for _ in range(rounds)))
        name = [flood.name, flood.keys] if flood else ["none", "-"]
        rows[row] = {"polite": polite, "flood": flooded}
        if ended(polite + flooded):
            line(*name, ended(polite + flooded), *["-"] * 6, "**no**")
            continue
        most_us = 1000 * (many_p99_ms if flood and flood.connections == 8 else p99_ms)
        share = 100 * sum(one["by_store"] for one in polite) / sum(one["sent"] for one in polite)
        raw, net = middle(polite, "raw", "p99_us"), middle(polite, "net", "p99_us")
        line(*name, f"{share:.2f} %", ms(middle(polite, "raw", "p50_us")), ms(raw), ms(largest(polite, "raw")), ms(net),
             ms(largest(polite, "net")), rate(flood, flooded),
             verdict(share >= LEAST_SHARE and raw <= most_us, share >= LEAST_SHARE and net <= most_us))
    return rows


def while_stopped(asked, seconds, p999_ms, max_ms):
    if not asked:
        return {}
    head("Redis stopped", f"no answer later than {p999_ms} ms after the deadline (p99.9), {max_ms} ms (max), net. Redis is "
         f"stopped for {STOPPED_S} s of every {STOPPED_S + RUNNING_S:.0f} s; an answer that is not late counts as 0.",
         "flood", "keys", "p99.9 late ms", "max late ms", "p99.9 late net", "max late net", "the flood's own p99.9 late net",
         "answers to the flood/s", "reached")
    rows = {}
    for row, flood in asked:
        polite, flooded = measure(flood, seconds, stops=True)
        name = [flood.name, flood.keys] if flood else ["none", "-"]
        rows[row] = {"polite": polite, "flood": flooded}
        if ended([polite, flooded]):
            line(*name, ended([polite, flooded]), *["-"] * 5, "**no**")
            continue
        cells = [polite[kind][figure] for kind in ("late_raw", "late_net") for figure in ("p999_us", "max_us")]
        p999, most, p999_net, most_net = cells
        line(*name, *map(ms, cells), ms(flooded["late_net"]["p999_us"]) if flood else "-", rate(flood, [flooded]),
             verdict(p999 <= p999_ms * 1000 and most <= max_ms * 1000, p999_net <= p999_ms * 1000 and most_net <= max_ms * 1000))
    return rows


def many_policies(n):
    lines = [f"  q{i}: {{algorithm: token_bucket, limit: 100, window: 1m}}\n" for i in range(n)]
    return CONFIG + "".join(lines)


def reloads(daemon):
    with daemon.client() as client:
        return client.call("stats")["reloads"]


def while_reloading(seconds, most_ms):
    head(f"Reload of {N_POLICIES} policies", f"the event loop is blocked for at most {most_ms} ms, net. Seen by a client that "
         "checks each ms.", "reloads", "p50 ms", "p99 ms", "max ms", "max net", "reached")
    with served(False, many_policies(N_POLICIES)) as (daemon, _):
        n = max(2, round(seconds / RELOAD_S))
        polite = start(daemon, "-m", "polite", "-p", "p", "-u", 1000, "-t", n * RELOAD_S)
        for _ in range(n):
            time.sleep(RELOAD_S / 4)
            daemon.reload()
            time.sleep(RELOAD_S * 3 / 4)
        result = finish(polite)
        done = eventually(lambda: reloads(daemon), "a reload")
    raw, net = result["raw"], result["net"]
    line(done, ms(raw["p50_us"]), ms(raw["p99_us"]), ms(raw["max_us"]), ms(net["max_us"]),
         verdict(raw["max_us"] <= most_ms * 1000, net["max_us"] <= most_ms * 1000))
    return result


def exact_again_s(client, admin, gaps):
    """Cut the connection once for each gap and once more. Returns the time from then to the next decision of Redis."""
    for gap_s in [*gaps, 0]:
        admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        time.sleep(gap_s)
    cut = time.monotonic()
    eventually(lambda: client.check("p", "k")["source"] == "redis", "Redis decides again")
    return time.monotonic() - cut


def while_cut(most_s):
    head(f"The connection to Redis cut while reconnecting, {N_CUT_RUNS} times", f"Redis decides again within {most_s} s of the "
         f"last of {N_CUTS} cuts, each time.", "runs", "p50 s", "max s", "reached")
    pick = random.Random(1)
    with served(True) as (daemon, redis), daemon.client() as client, redis.client() as admin:
        took = [exact_again_s(client, admin, [pick.random() * CUT_GAP_S for _ in range(N_CUTS)]) for _ in range(N_CUT_RUNS)]
    line(len(took), f"{statistics.median(took):.2f}", f"{max(took):.2f}", verdict(max(took) <= most_s, False))
    return took


def stolen():
    """The time that the host has taken from this machine's cores so far, and the total time, in ticks."""
    cpu = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return cpu[7], sum(cpu)


def tables(rounds, seconds, rows=""):
    """A row takes that many rounds of so many seconds; those with stops and reloads are one round of the whole time.
    `rows` chooses some (above)."""
    print("\nnet: without the time in which daemon or client waited for a core; p50 and p99: medians of the rounds; "
          "max: of all rounds")
    stolen_before, before = stolen()
    results = {
        "redis": next_to_floods("Redis healthy", chosen("redis", rows), rounds, seconds, True, 10, 15),
        "memory": next_to_floods("Memory store", chosen("memory", rows), rounds, seconds, False, 5, 5),
        "stopped": while_stopped(chosen("stopped", rows), rounds * seconds, 5, 15),
        "reload": while_reloading(rounds * seconds, 5) if rows in "reload" else None,
        "cut": while_cut(1) if rows in "cut" else None,
    }
    stolen_after, after = stolen()
    print(f"\nThe machine's host took {100 * (stolen_after - stolen_before) / (after - before):.1f} % of its time.")
    return results
