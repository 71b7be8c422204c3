"""soak.py: load and faults for a long while; at the end the daemon must be as small as it was and every check answered.

    soak.py [SECONDS]

One cycle is load from several connections while one fault happens: Redis restarted, stopped for a while, its scripts
flushed; the daemon's configuration reloaded; a client killed in the middle of its work. Between cycles the daemon is
idle and is measured. Descriptors must return to the first cycle's number, and resident memory may not rise after the
first quarter (by more than a tenth and a mebibyte, which is what allocators need to settle).
"""

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
os.environ["RATELIMITD_BUILD"] = str(ROOT / "build" / "release")
sys.path.insert(0, str(ROOT / "tests" / "integration"))

from bench import open_files, resident_kib  # noqa: E402
from harness import Ratelimitd, Redis, eventually, program  # noqa: E402

CYCLE_S = 3.0
CONFIG = """
defaults: {deadline: 20ms, on_failure: local}
policies:
  open:   {algorithm: token_bucket, limit: 100000, window: 1s}
  tight:  {algorithm: fixed_window, limit: 10, window: 1s}
  log:    {algorithm: sliding_log, limit: 20, window: 1s}
"""


def load(daemon, policy, seed):
    return subprocess.Popen([program("rl_load"), "-s", daemon.socket, "-p", policy, "-c", "16", "-d", "8", "-z", "0.99",
                             "-k", "20000", "-x", policy, "-i", str(seed), "-t", str(CYCLE_S)],
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def nothing(_daemon, _redis):
    pass


def restart_redis(_daemon, redis):
    redis.kill()
    time.sleep(0.3)
    redis.start()


def stop_redis(_daemon, redis):
    redis.pause()
    time.sleep(0.7)
    redis.resume()


def flush_scripts(_daemon, redis):
    with redis.client() as client:
        for _ in range(10):
            client.script_flush()
            time.sleep(0.05)


def reload(daemon, _redis):
    for _ in range(5):
        daemon.reload()
        time.sleep(0.1)


def kill_client(daemon, _redis):
    client = load(daemon, "open", 7)
    time.sleep(0.3)
    client.kill()
    client.communicate()


def cycle(daemon, redis, fault, seed):
    """One fault under load. What went wrong, or nothing."""
    clients = [load(daemon, policy, seed + i) for i, policy in enumerate(("open", "tight", "log"))]
    time.sleep(CYCLE_S / 4)
    fault(daemon, redis)
    wrong = []
    for client in clients:
        _, errors = client.communicate(timeout=CYCLE_S + 20)
        if client.returncode:
            wrong.append(f"a client ended with {client.returncode}: {errors.strip()}")
    if not daemon.running:
        wrong.append(f"the daemon is gone:\n{daemon.text()}")
    return wrong


def settled(daemon, redis):
    """Wait for Redis to be back in use; its source says so."""
    def exact():
        with daemon.client() as client:
            return client.check("open", "probe")["source"] == "redis"

    with redis.client() as client:
        client.flushall()
    eventually(exact, "decisions come from Redis again")
    eventually(lambda: daemon.ctl("ping").returncode == 0, "ping")


def soak(seconds):
    redis = Redis("redis")
    daemon = Ratelimitd(CONFIG, redis=redis)
    faults = itertools.cycle([nothing, restart_redis, stop_redis, flush_scripts, reload, kill_client])
    started, sizes, files, wrong = time.monotonic(), [], [], []
    try:
        print("cycle  fault           resident KiB  descriptors")
        for number, fault in enumerate(faults):
            if time.monotonic() - started > seconds or wrong:
                break
            wrong += cycle(daemon, redis, fault, 1000 * number)
            if wrong:
                break
            settled(daemon, redis)
            sizes.append(resident_kib(daemon.pid))
            eventually(lambda: not files or open_files(daemon.pid) <= files[0], "descriptors are as many as at first")
            files.append(open_files(daemon.pid))
            print(f"{number:5}  {fault.__name__:14} {sizes[-1]:13}  {files[-1]:11}", flush=True)
    finally:
        for process, number in ((redis, signal.SIGCONT), (daemon, signal.SIGCONT)):
            if process.running:
                process.signal(number)
        daemon.close()
        redis.close()
    settle = sizes[:max(len(sizes) // 4, 6)]
    if sizes and max(sizes) > max(settle) * 1.1 + 1024:
        wrong.append(f"memory rose from {max(settle)} to {max(sizes)} KiB")
    return wrong, len(sizes)


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 600
    wrong, cycles = soak(seconds)
    for line in wrong:
        print(f"soak: {line}")
    print(f"{cycles} cycles, {len(wrong)} failed")
    sys.exit(1 if wrong or not cycles else 0)


if __name__ == "__main__":
    main()
