"""cluster.py: three masters of a Redis Cluster against one server, and how long a failover takes.

    ./dev bench cluster [--rounds N] [--seconds S] [--sides "NAME;NAME"] [loads] [failover]     both parts, or the named one

loads: one server, and one, three and six masters with calls by node and by slot, some with TLS, all over TCP on this host, in every
round in shuffled order. Redis' processor time is the sum over the masters; "worth" is how many single servers the masters are, by that
time: masters x (one server's us a check / theirs). A host with few cores shows what a cluster costs, not how far it scales.
failover: a master of three with a replica each is killed (SIGKILL), or its replica takes over by CLUSTER FAILOVER, at 200 and at
20 000 checks a second. "Exact again" is from the fault until the last check that Redis did not decide. "Allowed less counted": checks
that Redis has allowed, less what it counts in the end. What was lost with the master makes it larger, and checks that were answered without
Redis and charged there all the same make it smaller.
"""

import argparse
import json
import random
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from bench import machine
from loads import Loads, Side, compare, head, print_rows

from certificates import Authority
from clusters import NODE_TIMEOUT_MS, PATIENCE_S, Cluster
from harness import Ratelimitd, Redis, eventually, free_port, program

N_TENANTS = 16
TENANTS = [f"tenant{n}" for n in range(N_TENANTS)]
CONFIG = """
caps: {max_connections: 20000}
defaults: {deadline: 5s, on_failure: error}
policies:
  open: {algorithm: token_bucket, limit: 10000000, window: 10d}
  window: {algorithm: fixed_window, limit: 10000000, window: 10d}
""" + "".join(f"  {tenant}: {{algorithm: token_bucket, limit: 10000000, window: 10d}}\n" for tenant in TENANTS)
LOADS = (
    Loads("uniform 64x16", 64, 16),
    Loads("uniform 1x1", 1, 1),
    Loads("Zipf 0.99 64x16", 64, 16, zipf=0.99),
    Loads("fixed window 64x16", 64, 16, ["window"]),
    Loads(f"a policy for each of {N_TENANTS} tenants, 64x16", 64, 16, TENANTS, keys=10000),
)

LIMIT, N_KEYS = 100_000_000, 64
BEFORE_S, AFTER_S = 2, 8
FAILOVER_CONFIG = f"policies: {{p: {{algorithm: fixed_window, limit: {LIMIT}, window: 1d, on_failure: allow, deadline: 20ms}}}}\n"


def start_daemon(nodes, config=CONFIG, topology="cluster", options=()):
    addresses = ", ".join(f'"{address}"' for address in nodes)
    lines = "".join(f"    {name}: {value}\n" for name, value in dict(options).items())
    kind = f"    topology: {topology}\n" if topology else ""
    daemon = Ratelimitd(f"{config}\nstore:\n  type: redis\n  redis:\n{kind}    addresses: [{addresses}]\n{lines}", start=False)
    daemon.start()
    return daemon


def is_ready(daemon, n_masters):
    with daemon.client() as client:
        def is_it():
            stats = client.call("stats")
            return stats["redis_up"] == stats["redis_nodes"] == n_masters

        eventually(is_it, f"{n_masters} masters are ready", PATIENCE_S)
    return daemon


# ---- throughput and cost ----------------------------------------------------------------------------------------------


def start_sides(processes, folder, wanted):
    authority = Authority(Path(folder))
    certificate, key = authority.issue("server", "IP:127.0.0.1")
    certificates = ["--tls-cert-file", str(certificate), "--tls-key-file", str(key), "--tls-ca-cert-file",
                    str(authority.certificate), "--tls-auth-clients", "no"]
    secure_port = free_port()
    tls, by_slot = {"tls": f"{{ca_file: {authority.certificate}}}"}, {"calls": "slot"}

    def single():
        return Redis("redis", tcp=True, arguments=["--tls-port", str(secure_port), *certificates])

    def masters(n, **options):
        return lambda: Cluster("redis", n_masters=n, n_replicas=0, **options)

    plain = {"one server": single, "1 master": masters(1), "3 masters": masters(3), "6 masters": masters(6),
             "TLS, 3 masters": masters(3, tls=certificates, tls_cli=("--tls", "--cacert", authority.certificate))}
    sides, started = [], {}
    for name, of, more in (("one server", "one server", {}),
                           ("1 master", "1 master", {}), ("1 master, by slot", "1 master", by_slot),
                           ("3 masters", "3 masters", {}), ("3 masters, by slot", "3 masters", by_slot),
                           ("6 masters", "6 masters", {}), ("6 masters, by slot", "6 masters", by_slot),
                           ("TLS, one server", "one server", tls),
                           ("TLS, 3 masters", "TLS, 3 masters", tls), ("TLS, 3 masters, by slot", "TLS, 3 masters", {**tls, **by_slot})):
        if wanted and sides and name not in wanted:
            continue
        if of not in started:
            started[of] = plain[of]()
            processes.append(started[of])
        is_one = of == "one server"
        servers = [started[of]] if is_one else started[of].nodes
        addresses = [f"127.0.0.1:{secure_port}"] if is_one and more else [server.address for server in servers]
        daemon = start_daemon(addresses, topology=None if is_one else "cluster", options=more)
        processes.append(daemon)
        sides.append(Side(name, [is_ready(daemon, len(servers))], servers))
    return sides


def loads_part(options):
    processes = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            sides = start_sides(processes, folder, options.sides)
            print(f"\nmedians of {options.rounds} paired rounds of {options.seconds} s; CxD = C connections, D checks under way on each")
            head(("load", "side"), ("worth",))
            for loads in LOADS:
                found = compare(sides, loads, options.rounds, options.seconds)
                single = found[sides[0].name]
                worth = {side.name: len(side.servers) * statistics.median(one["redis_us"] / mine["redis_us"]
                                                                          for one, mine in zip(single, found[side.name]))
                         for side in sides}
                print_rows([loads.name], sides, found, worth)
        finally:
            for process in reversed(processes):
                process.close()


# ---- failover ---------------------------------------------------------------------------------------------------------


def killed(cluster, master, replica):
    master.kill()


def by_command(cluster, master, replica):
    replica.ask("CLUSTER FAILOVER")


FAULTS = {"killed": killed, "CLUSTER FAILOVER": by_command}


def replica_of(cluster, master):
    for node in cluster.running:
        with node.client() as client:
            role = client.role()
        if role[0] == b"slave" and int(role[2]) == master.port:
            return node
    raise AssertionError(f"{master.address} has no replica")


def counted(daemon):
    """Units that the cluster counts, over all keys."""
    with daemon.client() as client:
        return sum(LIMIT - client.call("peek", "p", f"k{n:07}")["remaining"] for n in range(N_KEYS))


def failover(fault, rate):
    processes = []
    try:
        cluster = Cluster("redis")
        processes.append(cluster)
        daemon = is_ready(start_daemon([node.address for node in cluster.nodes], FAILOVER_CONFIG), 3)
        processes.append(daemon)
        master = random.Random(rate).choice(cluster.masters)
        replica = replica_of(cluster, master)
        load = subprocess.Popen([program("rl_outage"), "-s", daemon.socket, "-n", str(rate), "-k", str(N_KEYS),
                                 "-t", str(BEFORE_S + AFTER_S)], stdout=subprocess.PIPE, text=True)
        time.sleep(BEFORE_S)
        began_ns = time.monotonic_ns()
        FAULTS[fault](cluster, master, replica)
        eventually(lambda: replica.is_master, "the replica is promoted", PATIENCE_S)
        promoted_s = (time.monotonic_ns() - began_ns) / 1e9
        result = json.loads(load.communicate()[0])
        result["promoted_s"] = promoted_s
        result["again_s"] = max(0.0, (result["last_failure_ns"] - began_ns) / 1e9)
        is_ready(daemon, 3)
        result["uncounted"] = result["allowed"] - counted(daemon)
        return result
    finally:
        for process in reversed(processes):
            process.close()


def failover_part(_):
    print(f"\nthree masters with a replica each, cluster-node-timeout {NODE_TIMEOUT_MS} ms; {BEFORE_S} s before the fault, "
          f"{AFTER_S} s after it; deadline 20 ms\n\n"
          "| checks a second | master | replica promoted after | exact again after | not decided by Redis | allowed less counted | "
          "p99.9 ms | max ms | unanswered |\n|---|---|---|---|---|---|---|---|---|")
    for rate in (200, 20000):
        for fault in FAULTS:
            one = failover(fault, rate)
            print(f"| {rate} | {fault} | {one['promoted_s']:.2f} s | {one['again_s']:.2f} s | {one['checks'] - one['by_redis']} of "
                  f"{one['checks']} | {one['uncounted']} | {one['p999_ms']:.1f} | {one['max_ms']:.1f} | {one['unanswered']} |",
                  flush=True)


PARTS = {"loads": loads_part, "failover": failover_part}


def main():
    parser = argparse.ArgumentParser(prog="./dev bench cluster", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1, help="per side and round")
    parser.add_argument("--sides", type=lambda text: text.split(";"), metavar="NAME;NAME", help="of loads, next to the one server")
    parser.add_argument("parts", metavar="PART", nargs="*", help="loads, failover")
    options = parser.parse_intermixed_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    print(machine())
    for part in options.parts or PARTS:
        PARTS[part](options)


if __name__ == "__main__":
    main()
