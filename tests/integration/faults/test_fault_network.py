"""test_fault_network.py: dead lines and names, in network namespaces of the tests: nothing outside of them changes. A namespace
lives as long as the process that holds it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fault_matrix import proves
from harness import eventually

HERE, THERE = "10.77.0.1", "10.77.0.2"
IS_ROOT = os.getuid() == 0
AS_ROOT = [] if IS_ROOT else ["--map-root-user"]


class Namespace:
    """A network of its own with a loopback; `before` runs in it first, with a file system that may be mounted on."""

    def __init__(self, before="true"):
        hold = f"ip link set lo up && {before} && echo ready && exec sleep 600"
        self.holder = subprocess.Popen(["unshare", *AS_ROOT, "--net", "--mount", "sh", "-c", hold], text=True,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if self.holder.stdout.readline() != "ready\n":
            reason = self.holder.communicate()[1].strip().splitlines()
            pytest.skip(f"no network namespaces here: {reason[-1] if reason else 'unshare failed'}")
        self.launcher = ["nsenter", f"--target={self.holder.pid}", "--net", "--mount",
                         *([] if IS_ROOT else ["--user", "--preserve-credentials"])]

    def run(self, *argv):
        return subprocess.run([*self.launcher, *argv], check=True, capture_output=True, text=True).stdout

    def close(self):
        self.holder.kill()
        self.holder.communicate()


@pytest.fixture
def namespace():
    opened = []

    def open_one(**options):
        opened.append(Namespace(**options))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


class Line:
    """A link between the daemon's network and Redis'. While it is down, packets vanish: neither end hears of it."""

    def __init__(self, namespace):
        self.here, self.there = namespace(), namespace()
        try:
            self.here.run("ip", "link", "add", "line", "type", "veth", "peer", "name", "line", "netns", str(self.there.holder.pid))
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no veth here: {error.stderr.strip()}")
        ends = (self.here, HERE), (self.there, THERE)
        for end, address in ends:
            end.run("ip", "address", "add", f"{address}/24", "dev", "line")
            end.run("ip", "link", "set", "line", "up")
        for (end, _), (other, address) in (ends, ends[::-1]):  # nobody asks whose address it is: no answer would be an error
            mac = json.loads(other.run("ip", "-json", "link", "show", "line"))[0]["address"]
            end.run("ip", "neigh", "replace", address, "lladdr", mac, "dev", "line", "nud", "permanent")

    def cut(self):
        self.there.run("ip", "link", "set", "line", "down")

    def mend(self):
        self.there.run("ip", "link", "set", "line", "up")
        mac = json.loads(self.here.run("ip", "-json", "link", "show", "line"))[0]["address"]
        self.there.run("ip", "neigh", "replace", HERE, "lladdr", mac, "dev", "line", "nud", "permanent")


@pytest.fixture
def line(namespace):
    return Line(namespace)


def far_redis(start_redis, line):
    return start_redis(tcp=True, launcher=line.there.launcher, arguments=["--bind", "0.0.0.0", "--protected-mode", "no"])


@proves(5)
def test_the_line_goes_dead_without_a_reset(under_load, start_redis, line):
    redis = far_redis(start_redis, line)
    with under_load(redis, address=f"{THERE}:{redis.port}", daemon={"launcher": line.here.launcher}) as trial:
        trial.sees("redis")
        line.cut()
        trial.sees("deadline", "down")
        trial.lasts(1.2)
        line.mend()
    assert trial.stat("redis_stalls") >= 1


@proves(6)
def test_packets_vanish_before_redis_is_connected(under_load, start_redis, line):
    redis = far_redis(start_redis, line)
    line.cut()
    with under_load(redis, address=f"{THERE}:{redis.port}", daemon={"launcher": line.here.launcher}) as trial:
        trial.sees("down")
        eventually(lambda: trial.stat("redis_connect_failures") >= 2, "attempts end although checks keep coming")
        line.mend()


class Names:
    """A network whose only DNS server is the test's. say(NAME, ADDRESS...) changes what it answers."""

    def __init__(self, namespace, folder):
        self.file, resolver = folder / "names.json", folder / "resolv.conf"
        resolver.write_text("nameserver 127.0.0.1\noptions timeout:30 attempts:1\n")
        self.names = {}
        self.write()
        self.network = namespace(before=f"mount --bind {resolver} /etc/resolv.conf")
        program = Path(__file__).parent / "fault_names.py"
        self.server = subprocess.Popen([*self.network.launcher, sys.executable, program, self.file],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert self.server.stdout.readline() == "ready\n", "the DNS server did not begin"

    def write(self):
        written = self.file.with_suffix(".new")
        written.write_text(json.dumps(self.names))
        written.rename(self.file)

    def say(self, name, *addresses, delay_s=0):
        self.names[name] = {"addresses": addresses, "delay_s": delay_s}
        self.write()

    def n_asked(self):
        asked = Path(f"{self.file}.asked")
        return len(asked.read_text().splitlines()) if asked.exists() else 0

    def close(self):
        self.server.kill()
        self.server.communicate()


@pytest.fixture
def names(namespace, tmp_path):
    opened = Names(namespace, tmp_path)
    yield opened
    opened.close()


def redis_at(start_redis, names, address, **options):
    return start_redis(tcp=True, launcher=names.network.launcher,
                       arguments=["--bind", address, "--protected-mode", "no"], **options)


@proves(25)
def test_a_name_is_unknown_and_then_slow(under_load, start_redis, names):
    redis = redis_at(start_redis, names, "127.0.0.2")
    with under_load(redis, address=f"redis.test:{redis.port}", daemon={"launcher": names.network.launcher}) as trial:
        trial.daemon.wait_for_log("Redis: .*redis.test")
        trial.sees("down")
        names.say("redis.test", "127.0.0.2", delay_s=2)
        before = names.n_asked()
        eventually(lambda: names.n_asked() > before, "it is asked again")
        trial.lasts(1.2)  # no answer waits for the lookup


@proves(25)
def test_a_name_changes(under_load, start_redis, names):
    first = redis_at(start_redis, names, "127.0.0.2")
    second = redis_at(start_redis, names, "127.0.0.3", port=first.port)
    names.say("redis.test", "127.0.0.2")
    with under_load(first, address=f"redis.test:{first.port}", keeps=False, daemon={"launcher": names.network.launcher}) as trial:
        trial.sees("redis")
        names.say("redis.test", "127.0.0.3")
        first.kill()
        eventually(lambda: trial.stat("redis_disconnects") == 1, "the loss is noticed")
    with second.client() as client:
        assert client.keys("rl:*")


@proves(25)
@pytest.mark.parametrize("addresses", [("127.0.0.2", "127.0.0.3", "127.0.0.4"), ("127.0.0.4", "127.0.0.3", "127.0.0.2")],
                         ids=("first", "last"))
def test_all_but_one_address_of_a_name_are_dead(under_load, start_redis, names, addresses):
    names.say("redis.test", *addresses)
    redis = redis_at(start_redis, names, "127.0.0.4")
    with under_load(redis, address=f"redis.test:{redis.port}", keeps=False, daemon={"launcher": names.network.launcher}) as trial:
        trial.sees("redis")
        redis.kill()
        trial.sees("down")
        redis.start()
