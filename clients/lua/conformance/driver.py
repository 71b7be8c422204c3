"""driver.py: the driver of the conformance suite. The client under test runs in a worker of a real nginx; each command is a
request to it, made at once, and answered by driver.lua."""

import base64
import http.client
import json
import sys
import tempfile
import threading
from pathlib import Path

import msgpack

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
from gateways import LUA, start_nginx  # noqa: E402

SITE = """
    server {
        listen 127.0.0.1:PORT backlog=4096;
        client_max_body_size 8m; client_body_buffer_size 8m;
        location / { content_by_lua_block { require("driver").run() } }
    }
"""
output = threading.Lock()


def say(answer):
    with output:
        print(json.dumps(answer), flush=True)


def plain(value):
    """A value of the suite as MessagePack has it."""
    if isinstance(value, dict):
        if set(value) == {"base64"}:
            return base64.b64decode(value["base64"])
        return {name: plain(member) for name, member in value.items() if member is not None}
    return [plain(member) for member in value] if isinstance(value, list) else value


def shown(value):
    """A text of an answer; base64 where its bytes are not UTF-8."""
    raw = value.encode(errors="surrogateescape")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


def finish(connection, command):
    try:
        answer = msgpack.unpackb(connection.getresponse().read(), strict_map_key=False, unicode_errors="surrogateescape")
        for line in answer.pop("logged"):
            say({"event": "log", "message": line})
        if "key" in answer:
            answer["key"] = shown(answer["key"])
        answer["ms"] = answer.pop("ms_1000") / 1000
    except (OSError, http.client.HTTPException, ValueError) as error:
        answer = {"status": "bug", "message": repr(error)}
    connection.close()
    for decision in [answer.get("decision"), *(answer.get("decision") or {}).get("members", [])]:
        if decision is not None:
            for name in ("bound_by", "reason", "of", "quota", "window_ms", "of_reset_ms"):
                decision.setdefault(name, None)
    say({"id": command["id"], **answer})


with tempfile.TemporaryDirectory(prefix="rl-lua-") as folder:
    nginx = start_nginx(Path(folder), SITE, lua=[HERE, LUA])
    try:
        say({"ready": True, "pid": nginx.worker()})
        for line in sys.stdin:
            command = json.loads(line)
            if command["do"] == "block_ms":
                say({"event": "blocking"})
            connection = http.client.HTTPConnection("127.0.0.1", nginx.port, timeout=60)
            connection.request("POST", "/", msgpack.packb(plain(command)))
            threading.Thread(target=finish, args=(connection, command), daemon=True).start()
    finally:
        nginx.close()
