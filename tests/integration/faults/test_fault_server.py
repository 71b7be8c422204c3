"""test_fault_server.py: what a server does to its clients: it is away, stands still, loads, refuses."""

import os

import pytest

from fault_load import DEADLINE_S
from fault_matrix import proves
from harness import eventually

PATIENT_S = 10  # a deadline that even a busy machine keeps
# Where Redis does not hang, a busy machine must not look as if it did.
NO_STALL = {"stall": "10s"}


@pytest.fixture
def asked_without_waiting():
    """Commands whose reply nobody reads: ask(server, command...)."""
    connections = []

    def ask(server, *command):
        connections.append(server.client().connection_pool.make_connection())
        connections[-1].send_command(*command)

    yield ask
    for connection in connections:
        connection.disconnect()


@proves(1)
def test_redis_is_not_there_when_the_daemon_starts(under_load, redis):
    redis.kill()
    with under_load(redis, options=NO_STALL) as trial:
        trial.sees("down")
        trial.lasts(DEADLINE_S)
        redis.start()
        trial.is_over()


@proves(2)
def test_redis_refuses_connections(under_load, redis):
    with under_load(redis, keeps=False, options=NO_STALL) as trial:
        trial.sees("redis")
        before = trial.stat("redis_connects")
        redis.kill()
        trial.sees("down")
        eventually(lambda: trial.stat("redis_connects") >= before + 5, "several attempts")
        redis.start()
        trial.is_over()


@proves(3)
@pytest.mark.slice
def test_redis_is_killed_and_has_kept_what_it_answered(under_load, start_redis):
    redis = start_redis(arguments=["--appendonly", "yes", "--appendfsync", "always"])
    with under_load(redis, options=NO_STALL) as trial:
        for _ in range(3):
            trial.sees("redis")
            redis.kill()
            trial.sees("down")
            redis.start()
            trial.is_over()


@proves(4)
@pytest.mark.slice
def test_redis_hangs_and_its_kernel_acknowledges(under_load, redis):
    with under_load(redis) as trial:
        trial.sees("redis")
        redis.pause()
        trial.sees("deadline", "down")
        trial.lasts(1.5)
        redis.resume()
    assert trial.stat("redis_stalls") >= 1


@proves(11)
@pytest.mark.parametrize("command", [("DEBUG", "SLEEP", "1.5"), ("CLIENT", "PAUSE", "1500", "ALL")], ids=("sleep", "pause"))
def test_redis_pauses(under_load, start_redis, asked_without_waiting, command):
    redis = start_redis(arguments=["--enable-debug-command", "yes"])
    with under_load(redis) as trial:
        trial.sees("redis")
        asked_without_waiting(redis, *command)
        trial.sees("deadline")
        trial.lasts(1.5)


@proves(12)
def test_a_script_of_somebody_else_does_not_end(under_load, redis, asked_without_waiting):
    with redis.client() as admin, under_load(redis, options=NO_STALL) as trial:
        admin.config_set("lua-time-limit", "10")
        trial.sees("redis")
        asked_without_waiting(redis, "EVAL", "while true do end", "0")
        trial.sees("breaker")
        trial.lasts(1)
        assert trial.stat("redis_disconnects") == 0
        admin.script_kill()


@proves(13)
def test_the_script_is_flushed_again_and_again(under_load, redis):
    with redis.client() as admin, under_load(redis, deadline_s=PATIENT_S) as trial:
        trial.sees("redis")
        for n in range(1, 11):
            admin.script_flush()
            eventually(lambda: trial.stat("redis_script_loads") >= n, "it is loaded again")
        assert trial.stat("redis_script_loads") == 10


LOADS_SLOWLY = ["--enable-debug-command", "yes", "--loading-process-events-interval-bytes", "1024", "--appendonly", "no"]


@proves(14)
def test_redis_reloads_its_data(under_load, start_redis, asked_without_waiting):
    redis = start_redis(arguments=LOADS_SLOWLY)
    with redis.client() as admin, under_load(redis) as trial:
        admin.execute_command("DEBUG", "POPULATE", "2000", "other", "100")
        trial.sees("redis")
        admin.config_set("key-load-delay", "1000")
        asked_without_waiting(redis, "DEBUG", "RELOAD")
        trial.sees("breaker")
        admin.config_set("key-load-delay", "0")  # a busy machine makes each delay longer
    assert trial.stat("redis_errors") >= 1


@proves(14)
def test_redis_is_started_with_much_data(under_load, start_redis):
    redis = start_redis(arguments=LOADS_SLOWLY)
    with redis.client() as admin, under_load(redis) as trial:
        admin.execute_command("DEBUG", "POPULATE", "2000", "other", "100")
        trial.sees("redis")
        admin.shutdown(save=True)  # not SAVE and a kill: what is charged in between would be lost
        redis.wait()
        trial.sees("down")
        redis.arguments += ["--key-load-delay", "1000"]
        redis.start(wait=False)
        trial.daemon.wait_for_log("Redis: .*LOADING ")
        with redis.client() as other:
            other.config_set("key-load-delay", "0")  # a busy machine makes each delay longer


def fill(admin):
    admin.config_set("maxmemory", "1")
    return lambda: admin.config_set("maxmemory", "0")


def ask_for_replicas(admin):
    admin.config_set("min-replicas-to-write", "1")
    return lambda: admin.config_set("min-replicas-to-write", "0")


def fail_to_save(admin):
    """The folder of the dump is gone, so a snapshot fails, and with save points set, Redis writes nothing."""
    before = admin.config_get("dir")["dir"]
    folder = f"{before}/gone"
    os.mkdir(folder)
    admin.config_set("dir", folder)
    os.rmdir(folder)
    admin.config_set("save", "3600 1")
    admin.bgsave()
    eventually(lambda: admin.info("persistence")["rdb_last_bgsave_status"] == "err", "the snapshot fails")

    def undo():
        admin.config_set("dir", before)
        admin.bgsave()
        eventually(lambda: admin.info("persistence")["rdb_last_bgsave_status"] == "ok", "the snapshot succeeds")

    return undo


def lose_the_master(admin):
    admin.config_set("replica-serve-stale-data", "no")
    admin.replicaof("127.0.0.1", "1")
    return lambda: admin.replicaof("NO", "ONE")


REFUSALS = {"OOM": fill, "NOREPLICAS": ask_for_replicas, "MISCONF": fail_to_save, "MASTERDOWN": lose_the_master}


@proves(20)
@pytest.mark.parametrize("word", REFUSALS)
def test_redis_writes_nothing(under_load, start_redis, word):
    redis = start_redis(arguments=["--enable-protected-configs", "yes"])
    options = {**NO_STALL, "breaker": "{errors: 5, late: 0}"}
    with redis.client() as admin, under_load(redis, options=options) as trial:
        trial.sees("redis")
        undo = REFUSALS[word](admin)
        trial.sees("breaker")
        if word == "MASTERDOWN":
            trial.daemon.wait_for_log("Redis: this server is a replica")
        else:
            trial.daemon.wait_for_log(f"Redis does not decide: the breaker is open: it refused 5 batches in a row: {word} ")
            assert trial.stat("redis_disconnects") == 0
        trial.lasts(0.6)
        undo()


@proves(21)
def test_redis_asks_for_a_password_in_mid_flight(under_load, redis):
    with redis.client() as admin, under_load(redis) as trial:
        trial.sees("redis")
        admin.config_set("requirepass", "secret")
        admin.client_kill_filter(_type="normal", skipme=True)
        trial.sees("down")
        trial.daemon.wait_for_log("NOAUTH: Redis asks for a password; set store.redis.password_file")
        admin.config_set("requirepass", "")


@proves(22)
def test_redis_has_too_many_clients(under_load, redis):
    with redis.client() as admin, under_load(redis) as trial:
        trial.sees("redis")
        before = admin.config_get("maxclients")["maxclients"]
        admin.config_set("maxclients", "1")
        admin.client_kill_filter(_type="normal", skipme=True)
        trial.sees("down")
        trial.daemon.wait_for_log("max number of clients reached")
        admin.config_set("maxclients", before)


@proves(36)
def test_redis_evicts_counters(ratelimitd, connect, redis):
    daemon = ratelimitd("defaults: {deadline: 10s}\npolicies: {few: {algorithm: fixed_window, limit: 5, window: 1d}}", redis=redis)
    client = connect(daemon)
    allowed = 0
    with redis.client() as admin:
        admin.config_set("maxmemory-policy", "allkeys-random")

        def ask(n):
            answers = [client.check("few", "k") for _ in range(n)]
            assert {answer["source"] for answer in answers} <= {"redis", "deny_cache"}
            return sum(answer["allowed"] for answer in answers)

        assert ask(10) == 5
        admin.config_set("maxmemory", "1")
        eventually(lambda: not admin.keys("*few*"), "all keys go")
        admin.config_set("maxmemory", "0")
        eventually(lambda: ask(1), "more is allowed, once no denial is remembered")
