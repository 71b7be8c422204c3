"""once.py: what a check with a request id costs Redis beside a plain one: a turn of 64 keys each, by the server's own count
of microseconds in EVALSHA. `python3 tests/bench/once.py [TURNS]`"""

import os
import struct
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "integration"), str(ROOT / "lua")]

from harness import Redis  # noqa: E402
from stitch import stitch  # noqa: E402

N = 64
BUCKET = tuple(struct.pack("<Q", n)[:7] for n in (1000, 1, 10**9, 10**9))  # a tokens per b us, up to c, d


def plain(keys):
    run = struct.pack("<BBH", 0, 0, N) + b"".join(BUCKET)
    return [*keys, struct.pack("<IHBH", 1, N, 1, 0) + run]


def in_steps(keys, notes=()):
    steps = b""
    for i in range(N):
        member = struct.pack("<BH", 1, i + 1) + struct.pack("<Q", 1)[:7]
        fields = struct.pack("<BH", 1, N + i + 1) + struct.pack("<Q", 60_000)[:6] + struct.pack("<I", 7) if notes else b"\0"
        steps += struct.pack("<BB", 1, 1) + member + fields
    return [*keys, *notes, struct.pack("<IHBH", 1, 65535, 1, N) + b"\0" + b"".join(BUCKET) + steps]


def main():
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    server = Redis("redis")
    with server.client() as redis:
        sha = redis.script_load(stitch(ROOT))
        keys = [f"rl:{{b000}}:tb1:p:{i}" for i in range(N)]
        for name, make in (("plain", lambda t: plain(keys)), ("in steps", lambda t: in_steps(keys)),
                           ("in steps, new request ids", lambda t: in_steps(keys, [f"rl:{{b000}}:note1:p:1:{i}:{t}" for i in range(N)])),
                           ("in steps, known request ids", lambda t: in_steps(keys, [f"rl:{{b000}}:note1:p:1:{i}:0" for i in range(N)]))) * 3:
            redis.config_resetstat()
            for t in range(turns):
                args = make(t)
                redis.evalsha(sha, len(args) - 1, *args)
            stat = redis.info("commandstats")["cmdstat_evalsha"]
            print(f"{name:28} {stat['usec'] / stat['calls'] / N:6.2f} us of Redis a check")
    server.close()


if __name__ == "__main__":
    main()
