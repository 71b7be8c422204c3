"""bench.py: compares the daemon with direct use of Redis, in one run on one machine.

    bench.py [--rounds N] [--seconds S] [--rows TEXT] [SECTION...]      all sections except fairness, or the named ones

The rules: all sides of a row run in every round, in shuffled order; a ratio is the median of the rounds' ratios, never a
quotient of two medians; processor time is what the kernel counted for the process (/proc/PID/task/*/schedstat); each
side has its own keys and has used them before its time is measured. On a small or shared machine, wall-clock figures vary by a
tenth and more from round to round; system calls and processor time per decision are more stable.
"""

import argparse
import json
import os
import platform
import random
import re
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
os.environ.setdefault("RATELIMITD_BUILD", str(ROOT / "build" / "release"))
sys.path.insert(0, str(ROOT / "tests" / "integration"))

import counting  # noqa: E402
import fairness  # noqa: E402
import keys  # noqa: E402
import visitors  # noqa: E402
from certificates import Authority  # noqa: E402
from harness import Client, Ratelimitd, Redis, eventually, free_port, program  # noqa: E402

SECTIONS = ("redis", "tls", "processes", "memory", "latency", "syscalls", "instructions", "counting", "size", "keys", "admin")
APART = ("fairness",)  # only if they are named: they take as long as all others together
N_KEYS = 100000
LUA = {"gcra": ROOT / "tests" / "bench" / "gcra.lua", "window": ROOT / "tests" / "bench" / "fixed_window.lua"}

# A failure answer is not a decision, so failures are errors here, and an error ends the bench. `open` and `hot`
# never deny during a bench, and `open` refills so slowly that a used key always has a state, like keys in service.
CONFIG = """
caps: {max_connections: 20000}
defaults: {deadline: 5s, on_failure: error}
policies:
  open:    {algorithm: token_bucket, limit: 10000000, window: 10d}
  hot:     {algorithm: token_bucket, limit: 8640000000, window: 10d}
  window:  {algorithm: fixed_window, limit: 1000000000, window: 10s}
  tight:   {algorithm: token_bucket, limit: 100, window: 1m}
"""

# The same limits for the baseline's scripts: (script, its arguments).
DIRECT = {
    "open": ("gcra", "86400 864000000000"),
    "hot": ("gcra", "100 864000000000"),
    "window": ("window", "1000000000 10000"),
    "tight": ("gcra", "600000 60000000"),
}


def cpu_ns(pid):
    """The processor time of a process and its threads, from the kernel, in nanoseconds."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def run_load(arguments, cores=None):
    pin = (lambda: os.sched_setaffinity(0, cores)) if cores else None
    done = subprocess.run([program("rl_load"), *map(str, arguments)], capture_output=True, text=True, preexec_fn=pin)
    if done.returncode:
        sys.exit(f"bench: the load failed: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)


class Shape:
    """The number of connections, requests in flight, the keys and the policy."""

    def __init__(self, name, policy, connections, depth, keys=N_KEYS, zipf=0.0, forked=False):
        self.name, self.policy, self.forked = name, policy, forked
        self.load = ["-c", connections, "-d", depth, "-k", keys, "-z", zipf, *(["-f"] if forked else [])]


REDIS_SHAPES = (
    Shape("bucket, uniform 64x16", "open", 64, 16),
    Shape("bucket, uniform 16x16", "open", 16, 16),
    Shape("bucket, uniform 64x1", "open", 64, 1),
    Shape("bucket, uniform 64x64", "open", 64, 64),
    Shape("fixed window, uniform 64x16", "window", 64, 16),
    Shape("bucket, Zipf 64x16", "open", 64, 16, zipf=0.99),
    Shape("bucket, Zipf 64x16, many denied", "tight", 64, 16, zipf=0.99),
    Shape("bucket, one hot key 64x16", "hot", 64, 16, keys=1),
    Shape("bucket, one hot key 64x16, denied", "tight", 64, 16, keys=1),
)
MEMORY_SHAPES = (
    *(Shape(f"bucket, uniform {c}x{d}", "open", c, d) for c, d in ((1, 1), (16, 16), (64, 16))),
    Shape("bucket, one hot key 64x16", "hot", 64, 16, keys=1),
)


class Side:
    """One way to get decisions: its load arguments, and the processes whose time is counted."""

    def __init__(self, name, daemon=None, redis=None, shas=None, tcp=False):
        self.name, self.daemon, self.redis, self.shas, self.tcp = name, daemon, redis, shas, tcp

    def target(self, shape):
        if self.daemon:
            return ["-s", self.daemon.socket, "-p", shape.policy, "-a"]
        script, arguments = DIRECT[shape.policy]
        return ["-r", self.redis.address if self.tcp else self.redis.socket, "-e", self.shas[script], "-g", arguments]

    def measure(self, shape, seconds, seed, cores=None):
        servers = [("daemon", self.daemon), ("redis", self.redis)]
        before = {name: cpu_ns(server.pid) for name, server in servers if server}
        prefix = f"{self.name[:12]}{shape.policy}-".replace(" ", "")
        result = run_load([*self.target(shape), *shape.load, "-x", prefix, "-i", seed, "-t", seconds], cores)
        for name, server in servers:
            if server:
                result[f"{name}_us"] = (cpu_ns(server.pid) - before[name]) / 1000 / result["requests"]
        return result


class VisitedSide(Side):
    """A daemon with visitors.py's connections to its listener for HTTP."""

    def measure(self, shape, seconds, seed, cores=None):
        with visitors.Visitors(self.daemon) as there:
            result = super().measure(shape, seconds, seed, cores)
        return {**result, "scrapes": there.n_scrapes, "idle": there.n_idle}


class Bench:
    def __init__(self, rounds, seconds, rows=""):
        self.rounds, self.seconds, self.rows = rounds, seconds, rows
        self.random = random.Random(1)
        self.processes = []
        self.results = {}

    # ---- servers and build ----

    def start_redis(self, **options):
        self.processes.append(Redis("redis", **options))
        return self.processes[-1]

    def start_daemon(self, config=CONFIG, **options):
        self.processes.append(Ratelimitd(config, **options))
        return self.processes[-1]

    def close(self):
        for process in reversed(self.processes):
            process.close()
        self.processes = []

    @staticmethod
    def load_scripts(redis):
        with redis.client() as client:
            return {name: client.script_load(path.read_text()) for name, path in LUA.items()}

    # ---- measuring ----

    def compare(self, shape, sides, cores=None):
        """All sides in every round: per side the list of its rounds."""
        rounds = {side.name: [] for side in sides}
        for side in sides:
            side.measure(shape, min(self.seconds, 0.7), 1, cores)
        for number in range(self.rounds):
            for side in self.random.sample(sides, len(sides)):
                rounds[side.name].append(side.measure(shape, self.seconds, 100 + number, cores))
        return rounds

    def table(self, title, base, columns, shapes, sides, cores=None):
        print(f"\n### {title}\n")
        heads = [name for name, _ in columns] + ([f"rate / {base}"] if len(sides) > 1 else [])
        print("| load | side | " + " | ".join(heads) + " |\n|---|---|" + "---|" * len(heads))
        for shape in shapes:
            rounds = self.compare(shape, sides, cores)
            self.results.setdefault(title, {})[shape.name] = rounds
            for side in sides:
                cells = [render([one.get(key) for one in rounds[side.name]]) for _, key in columns]
                if len(sides) > 1:
                    pairs = zip(rounds[side.name], rounds[base])
                    cells.append(f"{statistics.median(mine['per_second'] / theirs['per_second'] for mine, theirs in pairs):.2f}")
                print(f"| {shape.name} | {side.name} | " + " | ".join(cells) + " |", flush=True)

    # ---- the sections ----

    def redis_section(self):
        redis = self.start_redis()
        direct = Side("direct, pipelined", redis=redis, shas=self.load_scripts(redis))
        plain = Side("daemon, one key an EVALSHA", redis=redis,
                     daemon=self.start_daemon(redis=redis, redis_options={"batch_max_keys": 1, "merge": "false"}))
        whole = Side("daemon", redis=redis, daemon=self.start_daemon(redis=redis))
        columns = [("decisions/s", "per_second"), ("p50 us", "p50_us"), ("p99 us", "p99_us"),
                   ("daemon CPU us", "daemon_us"), ("Redis CPU us", "redis_us")]
        self.table("Over Redis (Unix socket)", direct.name, columns, REDIS_SHAPES, [direct, plain, whole])

    def tls_section(self):
        with tempfile.TemporaryDirectory() as folder:
            authority = Authority(Path(folder))
            certificate, key = authority.issue("server", "IP:127.0.0.1")
            port = free_port()
            redis = self.start_redis(tcp=True, arguments=[
                "--tls-port", str(port), "--tls-cert-file", str(certificate), "--tls-key-file", str(key),
                "--tls-ca-cert-file", str(authority.certificate), "--tls-auth-clients", "no"])
            plain = Side("daemon, TCP", redis=redis, daemon=self.start_daemon(redis=redis))
            tls = {"addresses": f'["127.0.0.1:{port}"]', "tls": f"{{ca_file: {authority.certificate}}}"}
            secure = Side("daemon, TCP with TLS", redis=redis, daemon=self.start_daemon(redis=redis, redis_options=tls))
            columns = [("decisions/s", "per_second"), ("p50 us", "p50_us"), ("p99 us", "p99_us"),
                       ("daemon CPU us", "daemon_us"), ("Redis CPU us", "redis_us")]
            shapes = [Shape(f"bucket, uniform {c}x{d}", "open", c, d) for c, d in ((64, 16), (16, 16), (16, 1), (1, 1))]
            self.table("TLS to Redis", plain.name, columns, shapes, [plain, secure])

    def processes_section(self):
        redis = self.start_redis(tcp=True)
        shas = self.load_scripts(redis)
        unix = Side("hiredis, Unix socket", redis=redis, shas=shas)
        tcp = Side("hiredis, TCP", redis=redis, shas=shas, tcp=True)
        whole = Side("daemon", redis=redis, daemon=self.start_daemon(redis=redis))
        columns = [("decisions/s", "per_second"), ("p50 us", "p50_us"), ("p99 us", "p99_us"),
                   ("daemon CPU us", "daemon_us"), ("Redis CPU us", "redis_us")]
        shapes = [Shape(f"{n} processes", "open", n, 1, forked=True) for n in (16, 64)]
        self.table("Processes that make one blocking call at a time", unix.name, columns, shapes, [unix, tcp, whole])

    def memory_section(self):
        memory = Side("daemon, memory store", daemon=self.start_daemon())
        columns = [("decisions/s", "per_second"), ("p50 us", "p50_us"), ("p99 us", "p99_us"), ("daemon CPU us", "daemon_us")]
        self.table("Memory store", memory.name, columns, MEMORY_SHAPES, [memory])

    def latency_section(self):
        core = {max(os.sched_getaffinity(0))}
        redis = self.start_redis()
        hiredis = Side("hiredis, Unix socket", redis=redis, shas=self.load_scripts(redis))
        whole = Side("daemon", redis=redis, daemon=self.start_daemon(redis=redis))
        memory = Side("daemon, memory store", daemon=self.start_daemon())
        for process in self.processes:
            os.sched_setaffinity(process.pid, core)
        columns = [("decisions/s", "per_second"), ("p50 us", "p50_us"), ("p99 us", "p99_us")]
        self.table("One call at a time, everything on one core", hiredis.name, columns,
                   [Shape("one process", "open", 1, 1, forked=True)], [hiredis, whole, memory], core)

    def syscalls_section(self):
        print("\n### System calls of the daemon for one check\n\n| load | store | system calls | which |\n|---|---|---|---|")
        if not shutil.which("strace"):
            print("strace is not installed")
            return
        redis = self.start_redis()
        for store, options in (("redis", {"redis": redis}), ("memory", {})):
            daemon = self.start_daemon(**options)
            for connections, depth in ((1, 1), (16, 16)):
                few, many = (count_syscalls(daemon, connections, depth, n) for n in (2000, 10000))
                calls = {name: (many.get(name, 0) - few.get(name, 0)) / 8000 for name in many}
                which = ", ".join(f"{name} {n:.2f}" for name, n in sorted(calls.items(), key=lambda item: -item[1]) if n >= 0.01)
                self.results.setdefault("syscalls", {})[f"{store} {connections}x{depth}"] = sum(calls.values())
                print(f"| {connections}x{depth} | {store} | {sum(calls.values()):.3f} | {which} |", flush=True)

    def instructions_section(self):
        print("\n### Instructions of the daemon for one check, outside the kernel (callgrind)\n\n| load | store | instructions |\n|---|---|---|")
        if not shutil.which("valgrind"):
            print("valgrind is not installed")
            return
        import instructions  # it imports this module

        for store in instructions.STORES:
            for connections, depth in instructions.SHAPES:
                each = sum(instructions.of_a_check(None, store, (connections, depth)).values())
                self.results.setdefault("instructions", {})[f"{store} {connections}x{depth}"] = each
                print(f"| {connections}x{depth} | {store} | {each:.0f} |", flush=True)

    def counting_section(self):
        if shutil.which("valgrind"):
            self.results["counting"] = counting.table(run_load, CONFIG, self.start_redis())
        else:
            print("\nvalgrind is not installed")

    def size_section(self):
        print("\n### Memory of the daemon (memory store, no keys)\n\n| state | resident KiB |\n|---|---|")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = min(hard, 21000) if hard != resource.RLIM_INFINITY else 21000
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        n_connections = min(10000, (wanted - 200) // 2)
        daemon = self.start_daemon()
        idle = resident_kib(daemon.pid)
        clients = [idle_connection(daemon.socket) for _ in range(n_connections)]
        eventually(lambda: open_files(daemon.pid) >= n_connections, "every connection is accepted")
        full = resident_kib(daemon.pid)
        for client in clients:
            client.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        watched = self.watched_kib()
        self.results["resident KiB"] = {"idle": idle, f"{n_connections} connections": full, "top and denials full": watched}
        print(f"| idle | {idle} |\n| {n_connections} idle connections | {full} ({(full - idle) * 1024 / n_connections:.0f} bytes each) |")
        print(f"| what operators ask for (top, denials) is full | {watched} |")

    def watched_kib(self):
        """Of a daemon that has denied more keys than it remembers, in both windows of top. The tables' memory is fixed."""
        daemon = self.start_daemon("top: {window: 1s}\npolicies:\n  never: {algorithm: fixed_window, limit: 0, window: 10s}\n")
        with Client(daemon.socket) as client:
            for window in range(2):
                for i in range(20):
                    client.call("check_many", [["never", f"{window}-{i}-{j}".ljust(64, "x")] for j in range(100)])
                eventually(lambda: not client.call("top", {"by": "key"})["denied"]["running"], "the window's end")
        return resident_kib(daemon.pid)

    def keys_section(self):
        redis = self.start_redis()
        daemon = Ratelimitd(keys.config(), redis=redis, redis_options=keys.REDIS_OPTIONS)
        self.processes.append(daemon)
        self.results["keys"] = keys.table(redis, daemon)

    def admin_section(self):
        shapes = [Shape(f"bucket, uniform {c}x{d}", "open", c, d) for c, d in ((1, 1), (16, 1), (16, 16))]
        columns = [("decisions/s", "per_second"), ("p50 us", "p50_us"), ("p99 us", "p99_us"), ("daemon CPU us", "daemon_us"),
                   ("whole scrapes", "scrapes"), ("idle connections, with those that followed", "idle")]
        seconds, self.seconds = self.seconds, max(self.seconds, 3)  # a scrape a second
        for store, options in (("memory store", {}), ("Redis", {"redis": self.start_redis()})):
            daemon = self.start_daemon(visitors.CONFIG + CONFIG + visitors.POLICIES, **options)
            alone, visited = Side(f"alone, {store}", daemon=daemon), VisitedSide(f"visited, {store}", daemon=daemon)
            self.table(f"Checks next to {visitors.N_IDLE} idle HTTP connections and a scrape a second, {store}", alone.name, columns,
                       shapes, [alone, visited])
        self.seconds = seconds

        print(f"\n### Ticks while a page is asked for {visitors.N_PAGES} times, memory store\n\n"
              "| over | lines | ticks a page | p50 us | p99 us | p999 us | longer than 250 us |\n|---|---|---|---|---|---|---|")
        for way in (visitors.over_http, visitors.by_method):
            daemon = self.start_daemon(visitors.CONFIG + CONFIG + visitors.POLICIES)
            is_alone = visitors.take_its_processor(daemon)
            row = self.results.setdefault("ticks of pages", {})[way.__name__] = visitors.ticks_of(daemon, way)
            print(f"| {way.__doc__} | {row['lines']} | {row['ticks']:.0f} | {row['p50_us']} | {row['p99_us']} | {row['p999_us']} | "
                  f"{row['long']} |", flush=True)
        if not is_alone:
            print("\nNot as root: a tick in which another process has had the daemon's processor is as much longer.")

        print("\n### Private memory of the daemon\n\n| daemon | KiB |\n|---|---|")
        for name, config, build in (("of a build without HTTP", "", ROOT / "build" / "no-http"), ("with `admin` off", "", None),
                                    ("with `admin.listen`", visitors.CONFIG, None)):
            if build is None or (build / "bin" / "ratelimitd").exists():
                kib = visitors.private_kib(self.start_daemon(config + CONFIG, build=build))
                self.results.setdefault("private KiB", {})[name] = kib
                print(f"| {name} | {kib} |", flush=True)

    def fairness_section(self):
        self.results["fairness"] = fairness.tables(self.rounds, self.seconds, self.rows)


def idle_connection(path):
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    return client


def open_files(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident_kib(pid):
    return int(re.search(r"VmRSS:\s*(\d+)", Path(f"/proc/{pid}/status").read_text()).group(1))


def count_syscalls(daemon, connections, depth, n_requests):
    """The number of each system call of the daemon during n_requests."""
    tracer = subprocess.Popen(["strace", "-c", "-f", "-p", str(daemon.pid)], stderr=subprocess.PIPE, text=True)
    tracer.stderr.readline()  # "Process N attached"
    run_load(["-s", daemon.socket, "-p", "open", "-a", "-c", connections, "-d", depth, "-n", n_requests])
    tracer.send_signal(signal.SIGINT)
    _, summary = tracer.communicate()
    rows = re.findall(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)(?:\s+\d+)?\s+(\w+)$", summary, re.M)
    return {name: int(calls) for calls, name in rows if name != "total"}


def render(values):
    values = [value for value in values if value is not None]
    if not values:
        return "-"
    middle = statistics.median(values)
    return f"{middle / 1e6:.2f} M" if middle >= 1e6 else f"{middle / 1000:.1f} k" if middle >= 10000 else f"{middle:.2f}"


def output(*argv):
    try:
        return subprocess.run(argv, capture_output=True, text=True).stdout.strip().splitlines()[0]
    except (OSError, IndexError):
        return "unknown"


def machine():
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)', Path("/etc/os-release").read_text(), re.M))
    redis = re.search(r"v=(\S+)", output("redis-server", "--version"))
    return (f"{len(os.sched_getaffinity(0))} cores, {cpu.group(1) if cpu else platform.machine()}, Linux {platform.release()}, "
            f"{release.get('PRETTY_NAME', 'unknown')}, redis {redis.group(1) if redis else 'unknown'}, "
            f"{output(program('ratelimitd'), '--version')}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5, help="per side and round")
    parser.add_argument("--rows", default="", metavar="TEXT", help="of fairness: those whose 'table: flood keys' contains it")
    parser.add_argument("sections", nargs="*")
    options = parser.parse_args()
    unknown = set(options.sections) - {*SECTIONS, *APART}
    if unknown:
        parser.error(f"no such section: {', '.join(unknown)}; there are {', '.join(SECTIONS + APART)}")
    if "fairness" in options.sections and (wrong := fairness.unmatched(options.rows)):
        parser.error(f"--rows: {wrong}")
    print(f"{machine()}\nmedians of {options.rounds} interleaved rounds of {options.seconds} s; {N_KEYS} keys; CxD = C connections, "
          "D requests under way on each")
    bench = Bench(options.rounds, options.seconds, options.rows)
    for section in options.sections or SECTIONS:
        try:
            getattr(bench, f"{section}_section")()
        finally:
            bench.close()
    (ROOT / "build" / "bench.json").write_text(json.dumps(bench.results, indent=1) + "\n")
    print("\nEvery round: build/bench.json")


if __name__ == "__main__":
    main()
