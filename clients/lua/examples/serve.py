"""serve.py nginx | haproxy: the example service on 127.0.0.1:PORT; for the conformance suite. What the gateway logs goes to standard
error."""

import os
import signal
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
from gateways import LUA, Gateway, copying_log, needs, start_nginx  # noqa: E402


def nginx(folder, port):
    lines = (HERE / "nginx.conf").read_text().splitlines()
    text = "\n".join(line for line in lines if not line.startswith(("lua_package_path", "lua_socket_log_errors")))
    end = text.rindex("}")
    text = text[:end] + (HERE / "attacks.conf").read_text() + text[end:]
    text = text.replace("init_by_lua_block {", f'init_by_lua_block {{ dofile("{HERE}/attacks_nginx.lua")')
    return start_nginx(folder, text.replace("8080", "PORT"), lua=[LUA], port=port)


def haproxy(folder, port):
    rules, application = (HERE / "attacks.cfg").read_text().split("# ---- application\n")
    text = (HERE / "haproxy.cfg").read_text()
    inserted = {
        "    default_backend app\n": rules + "    default_backend app\n",
        '    http-request return status 404 content-type "text/plain; charset=utf-8" string "not here\\n"\n': application,
        # a thread has counters and lines of the log of its own
        "global\n": "global\n    nbthread 1\n",
        "/etc/haproxy/limits.lua\n": "/etc/haproxy/limits.lua\n    lua-load-per-thread /etc/haproxy/attacks.lua\n",
        "/usr/share/ratelimitd/lua": LUA, "/etc/haproxy": HERE, "/run": folder, "8080": port,
    }
    for there, here in inserted.items():
        text = text.replace(there, str(here) + (there if here == application else ""))
    path = folder / "haproxy.cfg"
    path.write_text(text)
    return Gateway([needs("haproxy"), "-db", "-f", str(path)], port, folder)


with tempfile.TemporaryDirectory(prefix="rl-lua-") as folder:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    gateway = {"nginx": nginx, "haproxy": haproxy}[sys.argv[1]](Path(folder), int(os.environ["PORT"]))
    with copying_log(gateway):
        try:
            print("ready", flush=True)
            signal.sigwait({signal.SIGTERM, signal.SIGINT})
        finally:
            gateway.close()
