"""test_change_a_limit.py: the walk through a reload in docs/operate.md, command by command, on the daemon's own file."""

import os
import re
import shlex
import subprocess
from pathlib import Path

from harness import build_dir, eventually

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "operate.md").read_text()


def blocks():
    section = re.search(r"^## Change a limit\n.*?(?=^## )", PAGE, re.M | re.S)[0]
    return [re.search(rf"^```{kind}\n(.*?)^```", section, re.M | re.S)[1] for kind in ("yaml", "sh")]


def test_a_limit_is_changed_and_taken_back_without_a_lost_count(any_store, ratelimitd, connect):
    configuration, script = blocks()
    daemon = ratelimitd("defaults: {deadline: 5s}\n" + configuration, redis=any_store)  # Redis is slow on a busy machine
    client = connect(daemon)
    wanted = "memory" if any_store is None else "redis"
    eventually(lambda: client.check("login", "probe", 0)["source"] == wanted, "the store is there")
    assert client.check("login", "203.0.113.7", 3)["remaining"] == 2
    limits, n_lines = [], 0
    for line in script.splitlines():
        command, _, comment = line.partition("  #")
        done = subprocess.run(["sh", "-ec", command], cwd=daemon.directory, capture_output=True, text=True, timeout=20,
                              env={**os.environ, "PATH": f"{build_dir() / 'bin'}:{os.environ['PATH']}",
                                   "RATELIMIT_SOCKET": daemon.socket})
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        if "->" in comment:
            assert comment.strip().replace("# ", "") == done.stdout.splitlines()[0]
            n_lines += 1
        if shlex.split(command)[0] == "ratelimitctl":
            limits.append(client.check("login", "203.0.113.7", 0)["limit"])
    assert n_lines == 2 and limits == [5, 10, 10, 5, 5]
    assert client.check("login", "203.0.113.7")["remaining"] == 1  # the same connection, the same count
