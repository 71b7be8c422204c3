"""soak.py: load and faults for a long time; at the end the daemon must be as small as before, and every check answered.

    soak.py [SECONDS]
    soak.py kills [N]      Redis killed N times (default 200) under the same load, each time once it decides again

One cycle is load from several connections while one fault happens: Redis restarted, stopped for a while, its scripts
flushed, its clients' connections ended, its memory full; the daemons' configuration reloaded; clients killed in the
middle of their work. The load is checks at full speed, together with every other method (methods.py). One daemon
has that Redis, another a memory store that is always full. The soak measures them between cycles, when they are idle: no
slot or reservation may be left. Descriptors must return to the first cycle's number, and resident memory may not rise after the first
quarter, in which each fault has come twice (by more than a tenth and a mebibyte, which is what allocators need to settle).
"""

import itertools
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
os.environ.setdefault("RATELIMITD_BUILD", str(ROOT / "build" / "release"))
sys.path.insert(0, str(ROOT / "tests" / "integration"))

from bench import open_files, resident_kib  # noqa: E402
from harness import Ratelimitd, Redis, RpcError, eventually, program  # noqa: E402
from methods import N_KEYS, N_SLOTS, POLICIES  # noqa: E402

CYCLE_S = 3.0
KILLS_A_CYCLE = 10
SETTLED_KILLS = 50  # until then buffers become as large as the load needs
LEAK_KIB = 32  # more than this in a typical cycle of kills is a leak: a connection and its buffers take about 20 KiB
STEPS_KIB = 1024  # all cycles together may rise by this: some larger load has taken more buffers at once
# The cap limits the effect of a busy machine: memory stays as large as at the largest load so far.
CONFIG = """
caps: {max_inflight: 2000}
defaults: {deadline: 20ms, on_failure: local}
policies:
  open:   {algorithm: token_bucket, limit: 100000, window: 1s}
  tight:  {algorithm: fixed_window, limit: 10, window: 1s}
  log:    {algorithm: sliding_log, limit: 20, window: 1s}
""" + POLICIES
FULL = "store: {type: memory, memory: {max_keys: 500}}\n"


def every_method(daemon, seed):
    """Every method."""
    return subprocess.Popen([sys.executable, str(Path(__file__).with_name("methods.py")), daemon.socket, str(CYCLE_S),
                             str(seed)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def load(daemon, policy, seed):
    """Checks of one policy."""
    return subprocess.Popen([program("rl_load"), "-s", daemon.socket, "-p", policy, "-c", "16", "-d", "8", "-z", "0.99",
                             "-k", "20000", "-x", policy, "-i", str(seed), "-t", str(CYCLE_S)],
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def nothing(_daemons, _redis):
    pass


def restart_redis(_daemons, redis):
    redis.kill()
    time.sleep(0.3)
    redis.start()


def stop_redis(_daemons, redis):
    redis.pause()
    time.sleep(0.7)
    redis.resume()


def flush_scripts(_daemons, redis):
    with redis.client() as client:
        for _ in range(10):
            client.script_flush()
            time.sleep(0.05)


def cut_connections(_daemons, redis):
    with redis.client() as client:
        for _ in range(5):
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            time.sleep(0.1)


def fill_redis(_daemons, redis):
    with redis.client() as client:
        client.config_set("maxmemory", 1)
        time.sleep(0.5)
        client.config_set("maxmemory", 0)


def reload(daemons, _redis):
    for _ in range(5):
        for daemon in daemons:
            daemon.reload()
        time.sleep(0.1)


def kill_clients(daemons, _redis):
    clients = [load(daemons[0], "open", 7)] + [every_method(daemon, 7) for daemon in daemons]
    time.sleep(0.5)
    for client in clients:
        client.kill()
        client.communicate()


FAULTS = [nothing, restart_redis, stop_redis, flush_scripts, cut_connections, fill_redis, reload, kill_clients]


def cycle(daemons, redis, fault, seed):
    """One fault under load. Returns the complaints."""
    clients = [load(daemons[0], policy, seed + i) for i, policy in enumerate(("open", "tight", "log"))]
    clients += [every_method(daemon, seed + i) for i, daemon in enumerate(daemons)]
    time.sleep(CYCLE_S / 4)
    fault(daemons, redis)
    wrong = []
    for client in clients:
        _, errors = client.communicate(timeout=CYCLE_S + 20)
        if client.returncode:
            wrong.append(f"a client ended with {client.returncode}: {errors.strip()}")
    for daemon in daemons:
        if not daemon.running:
            wrong.append(f"a daemon is gone:\n{daemon.text()}")
    return wrong


def n_free_slots(client, key):
    try:
        return client.call("peek", "slots", key)["remaining"]
    except RpcError:  # a busy machine misses a deadline now and then
        return None


def settled(daemon, redis):
    """Wait until the store decides, and all slots of clients are free again."""
    with daemon.client() as client:
        eventually(lambda: client.check("open", "probe")["source"] == ("redis" if redis else "memory"), "exact decisions")

        def nothing_is_held():
            stats = client.call("stats")
            assert stats["slots_acquired"] == (stats["slots"] + stats["slots_released"] + stats["slots_ended_by_close"] +
                                               stats["slots_settled"] + stats["slots_lost"]), stats
            return not any(stats[name] for name in ("slots", "reservations", "inflight"))

        eventually(nothing_is_held, "no slot, no reservation, no check")
        for i in range(N_KEYS):
            eventually(lambda: n_free_slots(client, f"s{i}") == N_SLOTS, "every slot is free")
    if redis:
        with redis.client() as store:
            store.flushall()


def measure(daemons, files):
    """Resident KiB of each; the descriptors once they are as few as at first."""
    sizes = [resident_kib(daemon.pid) for daemon in daemons]
    for daemon, most in zip(daemons, files[0] if files else []):
        eventually(lambda: open_files(daemon.pid) <= most, "descriptors are as many as at first")
    files.append([open_files(daemon.pid) for daemon in daemons])
    return sizes


def soak(seconds):
    redis = Redis("redis")
    daemons = [Ratelimitd(CONFIG, redis=redis), Ratelimitd(FULL + CONFIG)]
    started, sizes, files, wrong = time.monotonic(), [], [], []
    try:
        print("cycle  fault            resident KiB: Redis, memory  descriptors")
        for number, fault in enumerate(itertools.cycle(FAULTS)):
            if time.monotonic() - started > seconds:
                break
            wrong += cycle(daemons, redis, fault, 1000 * number)
            if wrong:
                break
            for daemon in daemons:
                settled(daemon, daemon.redis)
            sizes.append(measure(daemons, files))
            print(f"{number:5}  {fault.__name__:15} {sizes[-1][0]:20} {sizes[-1][1]:7}  {files[-1]}", flush=True)
    finally:
        for process in (redis, *daemons):
            if process.running:
                process.signal(signal.SIGCONT)
        for daemon in daemons:
            daemon.close()
        redis.close()
    for name, of in zip(("Redis", "memory"), zip(*sizes)):
        wrong += rose(name, of, 2 * len(FAULTS))
    return wrong, len(sizes)


def rose(name, sizes, n_settle):
    """A complaint if memory rose after the first quarter, or the first n_settle cycles if that is more."""
    settle = sizes[:max(len(sizes) // 4, n_settle)]
    if max(sizes) <= max(settle) * 1.1 + 1024:
        return []
    return [f"resident memory with {name} rose from {max(settle)} to {max(sizes)} KiB"]


def kill_redis(daemons, redis):
    """Kill it as often as a cycle requires, each time after it decides again."""
    with daemons[0].client() as client:
        for _ in range(KILLS_A_CYCLE):
            redis.kill()
            redis.start()
            eventually(lambda: client.check("open", "probe")["source"] == "redis", "exact decisions")


def leaks(sizes):
    """A complaint if memory rises from kill to kill, or in all, after the first SETTLED_KILLS."""
    settled = sizes[SETTLED_KILLS // KILLS_A_CYCLE - 1:]
    rises = [after - before for before, after in zip(settled, settled[1:])]
    if not rises or (statistics.median(rises) <= LEAK_KIB and settled[-1] - settled[0] <= STEPS_KIB):
        return []
    return [f"resident memory rose from {settled[0]} to {settled[-1]} KiB after the first {SETTLED_KILLS} kills, typically by "
            f"{statistics.median(rises)} KiB in {KILLS_A_CYCLE}"]


def soak_kills(n):
    """Kill Redis n times under load. Returns the complaints, and the number of cycles."""
    redis = Redis("redis")
    # `local` is not emptied between the kills: without a bound, its table would grow until it has every key of the load. So would
    # the pages that remembered denials have touched.
    store = f'''store:
  type: redis
  memory: {{max_keys: 500}}
  redis: {{addresses: ["{redis.address}"], deny_cache: {{max_keys: 500}}}}
'''
    daemon = Ratelimitd(CONFIG + store, redis=redis)
    sizes, files, wrong = [], [], []
    try:
        print("kills  resident KiB  descriptors")
        for number in range(n // KILLS_A_CYCLE):
            wrong += cycle([daemon], redis, kill_redis, 1000 * number)
            if wrong:
                break
            settled(daemon, redis)
            sizes += measure([daemon], files)
            print(f"{(number + 1) * KILLS_A_CYCLE:5}  {sizes[-1]:12}  {files[-1][0]:11}", flush=True)
    finally:
        daemon.close()
        redis.close()
    return wrong + (leaks(sizes) if sizes else []), len(sizes)


def main():
    if sys.argv[1:2] == ["kills"]:
        wrong, cycles = soak_kills(int(sys.argv[2]) if len(sys.argv) > 2 else 200)
    else:
        wrong, cycles = soak(float(sys.argv[1]) if len(sys.argv) > 1 else 600)
    for line in wrong:
        print(f"soak: {line}")
    print(f"{cycles} cycles, {len(wrong)} failed")
    sys.exit(1 if wrong or not cycles else 0)


if __name__ == "__main__":
    main()
