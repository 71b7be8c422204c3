"""gateways.py: nginx, HAProxy and PHP for the tests of clients/lua and clients/php, each on a port or socket of its own.

The programs are those of DEPS/gateways (unpacked packages) or, where they are not there, the system's.
"""

import contextlib
import http.client
import os
import signal
import sys
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LUA, PHP = ROOT / "clients" / "lua", ROOT / "clients" / "php"
sys.path.insert(0, str(ROOT / "tests" / "integration"))
from harness import Process, Ratelimitd, eventually, on_free_port  # noqa: E402

UNPACKED = Path(os.environ.get("DEPS") or ROOT / ".deps") / "gateways"
LIBRARIES = [str(path) for path in (UNPACKED / "usr/lib").glob("*-linux-gnu")]
ENV = {**os.environ, "LD_LIBRARY_PATH": ":".join([*LIBRARIES, os.environ.get("LD_LIBRARY_PATH", "")]).strip(":")}


def program(*patterns):
    """The first program of these names; a name may have *, as PHP's programs have their version."""
    folders = [UNPACKED / "usr/sbin", UNPACKED / "usr/bin", *map(Path, os.get_exec_path()), Path("/usr/sbin")]
    for pattern in patterns:
        for folder in folders:
            found = sorted(path for path in folder.glob(pattern) if os.access(path, os.X_OK))
            if found:
                return str(found[-1])
    return None


def needs(*patterns):
    found = program(*patterns)
    if not found:
        assert not os.environ.get("CI"), f"{patterns[0]} is missing: ./dev test clients installs it"
        pytest.skip(f"no {patterns[0]} here")
    return found


def daemon_with(config):
    """A daemon on its memory store, whose clock only the test moves."""
    started = Ratelimitd(config, arguments=["--test-clock"])
    set_clock(started, 0)
    return started


def set_clock(daemon, seconds):
    """The time of the limits, from an arbitrary day on."""
    with daemon.client() as client:
        client.call("test_clock", 1_800_000_000_000_000 + int(seconds * 1e6))


def unblock_signals():
    """A child ends on SIGTERM, whatever its parent waits for."""
    signal.pthread_sigmask(signal.SIG_SETMASK, set())


class Server(Process):
    """One that ends on SIGTERM."""

    def close(self):
        if self.running:
            self.process.terminate()
            self.wait()


class Gateway(Server):
    """nginx or HAProxy with a configuration, until it listens."""

    def __init__(self, argv, port, folder, env=ENV):
        super().__init__()
        self.port, self.folder = port, folder
        self.spawn(argv, env=env, preexec_fn=unblock_signals)
        eventually(self.listens, "the gateway listens")

    def listens(self):
        assert self.running, self.errors()
        with contextlib.suppress(OSError), contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, 5)) as one:
            one.connect()
            return True
        return False

    def get(self, path, method="GET", body=None, lines=(), **headers):
        """(status, headers, body); header names in small letters, several of a name joined as HTTP does. `lines`: header
        lines (name, value) in their order, of which several may have one name."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)) as connection:
            connection.putrequest(method, path, skip_host="Host" in headers)
            if body is not None:
                body = body.encode() if isinstance(body, str) else body
                connection.putheader("Content-Length", str(len(body)))
            for name, value in [*lines, *((name.replace("_", "-"), value) for name, value in headers.items())]:
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            text = answer.read().decode()
        found = {}
        for name, value in answer.getheaders():
            found[name.lower()] = f"{found[name.lower()]}, {value}" if name.lower() in found else value
        return answer.status, found, text

    def worker(self):
        """The pid of nginx' only worker."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return int(eventually(lambda: children.read_text().split(), "nginx' worker")[0])

    def errors(self):
        log = self.folder / "error.log"
        return (log.read_text() if log.exists() else "") + self.text()


@contextlib.contextmanager
def copying_log(gateway):
    """What a gateway logs also goes to standard error. Lines of nginx and PHP are in a file, those of HAProxy in what it writes."""
    is_over = threading.Event()

    def copy():
        log, n_copied, last = gateway.folder / "error.log", 0, False
        while not last:
            last = is_over.wait(0.05)
            lines = log.read_text(errors="replace") if log.exists() else gateway.text()
            sys.stderr.write(lines[n_copied:])
            sys.stderr.flush()
            n_copied = len(lines)

    copying = threading.Thread(target=copy)
    copying.start()
    try:
        yield
    finally:
        is_over.set()
        copying.join()


NGINX = """
daemon off;
{modules}
worker_processes {workers};
{user}
pid {folder}/nginx.pid;
error_log {folder}/error.log info;
worker_rlimit_nofile 16384;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
{http}
}}
"""
WITH_LUA = """
    lua_package_path "{folders}";
    lua_socket_log_errors off;
"""


def module_path(name):
    for folder in (UNPACKED / "usr/lib/nginx/modules", Path("/usr/lib/nginx/modules")):
        if (folder / name).exists():
            return str(folder / name)
    return None


def start_nginx(folder, text, workers=1, lua=None, port=None):
    """nginx with TEXT in its http block; PORT in the text is the port to listen on, `lua` folders of Lua modules."""
    if port is None:
        return on_free_port(lambda port: start_nginx(folder, text, workers, lua, port))
    binary, modules = needs("nginx"), ""
    if lua:
        paths = [module_path(name) for name in ("ndk_http_module.so", "ngx_http_lua_module.so")]
        modules = "".join(f"load_module {path};\n" for path in paths if path)
        folders = [*lua, UNPACKED / "usr/share/lua/5.1"]
        text = WITH_LUA.format(folders="".join(f"{folder}/?.lua;" for folder in folders) + ";") + text
    path = folder / "nginx.conf"
    path.write_text(NGINX.format(modules=modules, workers=workers, folder=folder, http=text.replace("PORT", str(port)),
                                 user="user root;" if os.geteuid() == 0 else ""))
    return Gateway([binary, "-p", str(folder), "-c", str(path), "-e", str(folder / "error.log")], port, folder)


# ---- PHP

PHP_LIBRARIES = f"{UNPACKED}/usr/share/php:/usr/share/php"
EXTENSIONS = ("ctype", "mbstring", "tokenizer", "iconv", "posix", "fileinfo", "dom", "xml")  # for frameworks, if not built in
FPM = """
[global]
error_log = {folder}/fpm.log
daemonize = no
[www]
listen = {folder}/fpm.sock
pm = static
pm.max_children = 4
clear_env = no
catch_workers_output = yes
php_value[include_path] = {include}
php_value[display_errors] = 0
php_value[log_errors] = 1
php_value[error_log] = {folder}/error.log
"""
TO_FPM = """
    server {{
        listen 127.0.0.1:PORT;
        location / {{
            fastcgi_buffering off;
            fastcgi_param SCRIPT_FILENAME {script}; fastcgi_param SCRIPT_NAME ''; fastcgi_param SERVER_NAME localhost;
            fastcgi_param REQUEST_METHOD $request_method; fastcgi_param REQUEST_URI $request_uri;
            fastcgi_param QUERY_STRING $query_string; fastcgi_param REMOTE_ADDR $remote_addr;
            fastcgi_param CONTENT_TYPE $content_type; fastcgi_param CONTENT_LENGTH $content_length;
            fastcgi_pass unix:{folder}/fpm.sock;
        }}
    }}
"""


def with_extensions(names):
    """Options that load these extensions, as far as they are separate files."""
    found = [sorted(folder.glob(f"php/*/{name}.so")) for name in names for folder in (UNPACKED / "usr/lib", Path("/usr/lib"))]
    return [word for paths in found if paths for word in ("-d", f"extension={paths[-1]}")]


def php(*arguments, extensions=()):
    """The argv of the command line's PHP, without any configuration of the system's."""
    return [needs("php", "php8*"), "-n", *with_extensions(extensions), "-d", f"include_path={PHP_LIBRARIES}", *map(str, arguments)]


class Fpm(Server):
    """php-fpm with four workers, until its socket is there."""

    def __init__(self, folder, env, extensions=()):
        super().__init__()
        path = folder / "fpm.conf"
        path.write_text(FPM.format(folder=folder, include=PHP_LIBRARIES))
        root = ["--allow-to-run-as-root"] if os.geteuid() == 0 else []
        self.spawn([needs("php-fpm*"), "-n", *with_extensions(extensions), "-F", *root, "-y", str(path)], env={**ENV, **env},
                   preexec_fn=unblock_signals)
        eventually(lambda: (folder / "fpm.sock").exists() or not self.running, "php-fpm listens")
        assert self.running, self.text() + (folder / "fpm.log").read_text()


def start_php(folder, script, env, port=None, extensions=()):
    """php-fpm behind nginx; SCRIPT answers every request. Returns the two; nginx is the one to ask."""
    fpm = Fpm(folder, env, extensions)
    return start_nginx(folder, TO_FPM.format(script=script, folder=folder), port=port), fpm
