"""documents_of_redis.py: runs the commands of docs/redis.md against the servers of a test."""

import os
import re
import subprocess
import sys

from harness import ROOT, build_dir

sys.path.insert(0, str(ROOT / "tests"))
import documents  # noqa: E402


def commands(mark):
    return next(block.text for block in documents.all_blocks() if block.page == "redis.md" and block.mark == mark)


def run(mark, hosts, daemon=None, **replaced):
    """The block under <!-- mark -->, with each host's address replaced by that of a test's server, which listens on TCP."""
    text = commands(mark)
    for host, server in hosts.items():
        address, port = server.address.rsplit(":", 1)
        text = re.sub(rf"{re.escape(host)}(:| -p | )6379\b", lambda found: f"{address}{found[1]}{port}", text)
    for old, new in replaced.items():
        text = text.replace(old, str(new))
    assert not any(host in text for host in hosts), text
    env = {**os.environ, "PATH": f"{build_dir() / 'bin'}:{os.environ['PATH']}", "RATELIMIT_SOCKET": daemon.socket if daemon else ""}
    return subprocess.run(["sh", "-ec", text], env=env, cwd=daemon.directory if daemon else None, capture_output=True, text=True,
                          timeout=60, stdin=subprocess.DEVNULL)
