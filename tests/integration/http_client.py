"""http_client.py: HTTP against a daemon's admin.listen, with bytes that the test controls."""

import json
import re
import socket

from harness import PATIENCE_S

ADMIN = 'admin: {listen: "127.0.0.1:0"}\n'


def port_of(daemon):
    """The port that the daemon was given."""
    return int(re.search(r":(\d+)$", daemon.wait_for_log(r"admin\.listen: HTTP on "))[1])


class Answer:
    def __init__(self, data):
        head, _, self.body = data.partition(b"\r\n\r\n")
        first, *fields = head.decode("latin-1").split("\r\n")
        self.status = int(first.split()[1]) if first.startswith("HTTP/1.") else None
        self.fields = {name.strip().lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
        if self.fields.get("transfer-encoding") == "chunked":
            self.body = unchunked(self.body)

    @property
    def text(self):
        return self.body.decode()

    def json(self):
        return json.loads(self.body)


def unchunked(data):
    body = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        n = int(size, 16)
        body, data = body + data[:n], data[n + 2:]
        if n == 0:
            break
    return body


def connect(daemon):
    return socket.create_connection(("127.0.0.1", port_of(daemon)), timeout=PATIENCE_S)


def read_all(connection):
    data = b""
    try:
        while chunk := connection.recv(65536):
            data += chunk
    except ConnectionError:
        pass
    return data


def ask(daemon, path="/", method="GET", host="localhost", fields=(), body=b"", connection=None):
    """One request on a connection of its own, and its Answer; a status of None: it was closed without one."""
    head = "\r\n".join([f"{method} {path} HTTP/1.1", *([f"Host: {host}"] if host is not None else []), *fields, "", ""])
    with connection or connect(daemon) as open_connection:
        try:
            open_connection.sendall(head.encode("latin-1") + body)
        except ConnectionError:
            pass  # refused before it was read whole: the answer may be there
        return Answer(read_all(open_connection))
