"""serve.py nginx | haproxy: the example service on 127.0.0.1:PORT; for the conformance suite."""

import os
import signal
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
from gateways import LUA, Gateway, needs, start_nginx  # noqa: E402


def nginx(folder, port):
    lines = (HERE / "nginx.conf").read_text().splitlines()
    text = "\n".join(line for line in lines if not line.startswith(("lua_package_path", "lua_socket_log_errors")))
    return start_nginx(folder, text.replace("8080", "PORT"), lua=[LUA], port=port)


def haproxy(folder, port):
    text = (HERE / "haproxy.cfg").read_text()
    for installed, here in (("/usr/share/ratelimitd/lua", LUA), ("/etc/haproxy", HERE), ("/run", folder), ("8080", port)):
        text = text.replace(installed, str(here))
    path = folder / "haproxy.cfg"
    path.write_text(text)
    return Gateway([needs("haproxy"), "-db", "-f", str(path)], port, folder)


with tempfile.TemporaryDirectory(prefix="rl-lua-") as folder:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    gateway = {"nginx": nginx, "haproxy": haproxy}[sys.argv[1]](Path(folder), int(os.environ["PORT"]))
    try:
        print("ready", flush=True)
        signal.sigwait({signal.SIGTERM, signal.SIGINT})
    finally:
        gateway.close()
