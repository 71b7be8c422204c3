"""fault_matrix.py: what can go wrong around one server, and what users see then. docs/faults.md is generated from it.

    fault_matrix.py --write    write docs/faults.md
    fault_matrix.py --check    compare it

A test of this folder takes its row with @proves(NUMBER): the answers that the row names must come, and no others. Rows that tests
elsewhere prove name them.
"""

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent.parent
sys.path.append(str(ROOT / "tests" / "lint"))
from tracked import tracked  # noqa: E402

PAGE = ROOT / "docs" / "faults.md"
STEADY = "steady"  # the load of fault_load.py


@dataclass(frozen=True)
class Row:
    fault: str
    how: str
    sees: str  # what users see, a sentence
    must: tuple = ()  # outcomes that come: "redis", or the reason of a failure answer
    may: tuple = ()  # outcomes that may come, besides those of a busy machine
    load: str = STEADY
    holds: str = ""  # besides the promise
    tests: tuple = field(default=())  # elsewhere: "FILE: NAME", the file's without its ending

    def answers(self):
        return ", ".join(f"`{outcome}`" for outcome in (*self.must, *self.may)) or "-"


HOSTILE, ANSWERS, LINK, FAULTS = "test_redis_hostile", "test_redis_answers", "test_redis_link", "test_redis_faults"

ROWS = {
    1: Row("Redis is not there when the daemon starts", "no server runs", "failure answers at once; the daemon is ready",
           ("down", "redis"), holds="found after two attempts at most",
           tests=("test_daemon: test_a_daemon_without_its_redis_is_ready_and_answers",
                  "test_outage: test_a_daemon_started_without_redis_serves_and_finds_it_later")),
    2: Row("Redis refuses connections", "the server is killed and started again", "failure answers at once",
           ("redis", "down"), holds="attempts wait a random time, up to 50 ms at first and up to 500 ms later",
           tests=(f"{LINK}: a_refused_connection_is_reported_with_its_address",
                  "test_backoff: a_wait_is_never_zero_and_never_above_the_ceiling")),
    3: Row("`kill -9` of Redis", "a server with `appendfsync always`", "failure answers at once", ("redis", "down"),
           holds="what Redis allowed is charged after its restart; nothing is sent twice",
           tests=(f"{FAULTS}: a_server_killed_under_load_loses_each_op_once",
                  "test_merge_back: test_what_was_admitted_locally_is_charged_once_redis_is_back",
                  "test_merge_back: test_a_second_outage_charges_only_its_own")),
    4: Row("Redis hangs; its kernel accepts and acknowledges", "`kill -STOP`",
           "at first the deadline's answers; then failure answers at once", ("redis", "deadline", "down"), ("breaker",),
           holds="the connection is given up after `store.redis.stall`; late replies are dropped",
           tests=(f"{LINK}: a_stopped_server_is_noticed_though_commands_keep_coming",
                  "test_outage: test_what_redis_answers_late_is_dropped_and_counted_once",
                  "test_merge_back: test_it_is_charged_beyond_the_limit_and_denied_until_that_has_ended")),
    5: Row("the line to Redis goes dead, without a reset",
           "the link of a network namespace is down; the proxy passes nothing, one way",
           "as 4", ("redis", "deadline", "down"), ("breaker",),
           holds="given up after `store.redis.stall`, not after TCP's 15 minutes"),
    6: Row("packets to Redis vanish before it is connected", "the link of a network namespace is down at the start",
           "failure answers at once", ("down", "redis"),
           holds="an attempt ends after a second, although checks keep coming"),
    7: Row("the connection breaks inside a reply", "the proxy ends it after N bytes: reset, end or half close",
           "failure answers until the next connection", ("redis", "down"), ("store_error",),
           holds="half a reply decides nothing",
           tests=(f"{HOSTILE}: a_connection_cut_inside_a_reply_loses_the_call_once",
                  "test_merge_back: test_a_merge_whose_answer_was_lost_is_charged_once")),
    8: Row("requests and replies come in single bytes", "the proxy writes them one by one", "nothing", ("redis",),
           holds="exactly what was allowed is charged", tests=(f"{ANSWERS}: an_answer_in_single_bytes_is_understood",)),
    9: Row("Redis is far away", "the proxy delays replies by 0, 1, 5, 15 and 500 ms, and up to twice as much",
           "below the deadline nothing; beyond it failure answers, most of them at once",
           ("redis", "breaker"), ("deadline", "down"),
           tests=("test_outage: test_a_slow_redis_costs_no_check_its_deadline_once_the_breaker_is_open",
                  "test_redis_breaker: a_redis_that_is_late_again_and_again_is_asked_again_once_it_answers_in_time")),
    10: Row("a narrow line to Redis", "the proxy passes 128 kbit/s; the load needs more", "failure answers for what does not pass",
            ("redis",), ("deadline", "breaker", "overload", "down"), load="steady, 2000 keys of 200 bytes",
            tests=("test_redis_store: beyond_max_output_new_checks_are_refused_and_those_that_wait_are_sent_later",
                   "test_redis_window: while_redis_is_slow_only_one_batch_is_before_it")),
    11: Row("Redis pauses", "`DEBUG SLEEP`, `CLIENT PAUSE`", "as 4", ("redis", "deadline"), ("down", "breaker")),
    12: Row("a script of another program does not end", "an endless EVAL until `SCRIPT KILL`",
            "the deadline's answers, then failure answers at once",
            ("redis", "breaker"), ("deadline", "down", "store_error"),
            holds="our script is never killed, nor does the daemon kill one",
            tests=("test_outage: test_a_busy_redis_opens_the_breaker_until_its_script_is_killed",)),
    13: Row("the script is flushed again and again", "`SCRIPT FLUSH`, ten times, as soon as it is loaded", "nothing", ("redis",),
            holds="loaded again once a flush; exactly what was allowed is charged",
            tests=(f"{FAULTS}: a_flushed_script_is_loaded_again_and_nothing_counted_twice",)),
    14: Row("Redis loads its data", "`DEBUG RELOAD`, and a restart, with `key-load-delay`",
            "failure answers at once", ("redis",), ("breaker", "store_error", "down", "deadline"),
            holds="after a restart: `down`; the log has Redis' own words"),
    15: Row("the master fails, and Sentinels promote its replica", "`SENTINEL FAILOVER`; `kill -9` and `kill -STOP` of the master",
            "failure answers until the Sentinels have agreed", ("redis",), ("down", "deadline", "breaker", "store_error"),
            holds="the old master is never used again; what it had not replicated is let through again",
            tests=("test_sentinel: test_a_hint_moves_the_connection_at_once",)),
    16: Row("Sentinels are gone, silent, foreign, or lie", "two of three are killed; played Sentinels", "nothing, while one is left",
            ("redis",), ("down", "deadline", "breaker", "store_error"), holds="each has 250 ms; the log names it",
            tests=("test_sentinel: test_a_sentinel_that_is_of_no_use_is_passed_over_and_named",
                   "test_sentinel: test_a_sentinel_that_names_a_replica_or_nobody_is_asked_last_then",
                   "test_sentinel: test_a_flood_of_hints_makes_no_flood_of_questions",
                   "test_sentinel: test_without_any_sentinel_the_log_says_so_and_the_connection_goes_on")),
    17: Row("a cluster changes: slots move, a master comes, goes, or fails",
            "`redis-cli --cluster` reshard, add, del-node; `kill -9` and `kill -STOP` of a master with `cluster-require-full-coverage no`; "
            "`kill -9` after its replica was cut off",
            "while slots move a failure answer for at most 1 in 20 000 checks; of a lost master's keys failure answers until its replica is promoted",
            ("redis",), ("down", "store_error"), load="steady; 600 keys, one after another",
            holds="no key is counted in two places; each check is charged once; other masters' keys are decided all the time. What the "
                  "replica had not got is let through again, and nothing else; the tests print its number: measured, none of 1500 decisions after "
                  "`kill -9`, and the 20 decided meanwhile with the replica cut off",
            tests=("test_cluster: test_slots_move_under_load_and_each_check_is_charged_once",
                   "test_cluster: test_a_master_comes_and_goes_under_load",
                   "test_cluster: test_a_master_that_is_lost_takes_only_its_keys_with_it")),
    18: Row("a node of a cluster lies, or is of no use",
            "played nodes: redirects in a circle, to a dead node, to a host name, without a host, to another hash slot or none, "
            "without words; silent, forbidden, broken maps",
            "where a redirect leads to a node that serves, nothing; else failure answers for the keys of the node that lies",
            ("redis",), ("store_error", "down", "breaker", "deadline"),
            holds="a call goes to four nodes at most; a few lines in the log; one that gives no map has 250 ms, and the log names it",
            tests=("test_cluster_watch: a_broken_map_is_passed_over_for_the_next_servers",
                   "test_cluster_watch: the_one_that_answered_goes_first_next_time",
                   "test_cluster_map: a_map_with_impossible_ranges_is_refused", "test_cluster_map: a_redirect_to_nowhere_is_refused")),
    19: Row("a node of a cluster refuses calls", "played nodes: CLUSTERDOWN, TRYAGAIN without end, CROSSSLOT",
            "failure answers for its keys, and nothing for the others", ("redis",), ("store_error", "down", "breaker", "deadline"),
            holds="after TRYAGAIN the call is sent again after 5 to 20 ms, until the deadline"),
    20: Row("Redis writes nothing",
            "memory is full (OOM); replicas are missing (NOREPLICAS); the disk fails (MISCONF); the master of "
            "a replica is away (MASTERDOWN)", "after five refused calls, failure answers at once",
            ("redis", "store_error", "breaker"), ("down",),
            holds="five calls, and then four writes a second to a scratch key; the connection stays, but that to a replica is left",
            tests=("test_outage: test_a_full_redis_is_asked_five_times_and_then_not_until_it_has_memory",
                   "test_redis_breaker: a_server_that_has_lost_its_master_is_left_by_the_probe",
                   f"{FAULTS}: a_server_that_became_a_replica_is_left",
                   "test_redis_reply: every_known_text_has_its_class_and_remedy")),
    21: Row("Redis asks for a password, or takes a right away", "`requirepass` and `CLIENT KILL` under load; `ACL SETUSER`",
            "failure answers at once; without a right for one policy, for that policy alone", ("redis", "down"), ("store_error",),
            holds="attempts up to 800 ms apart; the log names the setting",
            tests=("test_outage: test_a_policy_that_redis_refuses_is_in_the_log_however_slow_its_checks_come",
                   f"{FAULTS}: a_changed_password_is_used_after_a_reload",
                   "test_redis_window: one_policy_without_a_right_is_not_everybodys_outage")),
    22: Row("Redis has too many clients", "`maxclients 1` and `CLIENT KILL`", "failure answers at once", ("redis", "down"),
            holds="attempts up to 800 ms apart", tests=(f"{LINK}: too_many_clients_is_reported",)),
    23: Row("replies that were not asked for, of other shapes, garbage", "the proxy duplicates or changes replies; played servers",
            "failure answers until the next connection", ("redis", "down"), ("store_error",),
            holds="the connection is closed, the process never ends; no answer reaches another's check",
            tests=(f"{HOSTILE}: extra_replies_of_every_type_close_the_connection", f"{HOSTILE}: deep_nesting_closes_the_connection",
                   f"{HOSTILE}: a_huge_bulk_closes_the_connection_before_it_is_buffered",
                   f"{HOSTILE}: an_http_answer_closes_the_connection", f"{HOSTILE}: garbage_closes_the_connection",
                   f"{ANSWERS}: another_nonce_closes_the_connection",
                   f"{ANSWERS}: a_probe_answered_with_another_nonce_closes_the_connection_and_not_the_breaker")),
    24: Row("TLS to Redis fails", "the server shows a certificate of another CA, for another name, an expired one; the proxy stalls the "
            "handshake; one master of a cluster shows another's certificate",
            "failure answers at once, in a cluster for that master's keys", ("redis", "down"), ("store_error",),
            holds="no password reaches such a server; attempts up to 800 ms apart; the log names the setting. A renewed pair is taken by a "
                  "reload without a failure answer",
            tests=("test_tls: test_a_server_is_refused_and_learns_no_password",
                   "test_tls: test_a_new_pair_moves_the_connection_without_a_lost_check",
                   "test_tls: test_a_wrong_file_is_refused_with_its_line_and_changes_nothing",
                   "test_tls: test_tls_on_the_port_for_plain_text_is_reported", "test_tls: test_a_connection_may_be_cut_anywhere",
                   "test_redis_tls: an_error_of_another_connection_does_not_end_a_healthy_one",
                   "test_redis_tls_conn: a_server_that_asks_for_keys_and_never_reads_does_not_spin_the_loop")),
    25: Row("names: slow, unknown, changed, first address dead", "a DNS server of the tests in a network namespace",
            "failure answers at once until an address answers", ("redis",), ("down",),
            holds="a lookup of seconds delays no answer; each attempt asks anew and takes the next address",
            tests=(f"{LINK}: a_host_name_serves_whichever_of_its_addresses_answers",
                   "test_daemon: test_a_stop_does_not_wait_for_a_name_lookup")),
    26: Row("clients flood, sleep, never read, leave", "8 lists of 8000 checks at once, 10 000 connects, single bytes",
            "their share; other clients are answered meanwhile", load="floods",
            tests=("test_floods: test_eight_check_many_floods_next_to_a_polite_client", "test_floods: test_floods_that_leave",
                   "test_floods: test_clients_that_read_nothing_do_not_fill_the_memory_together",
                   "test_hostile: test_connects_and_leaves", "test_hostile: test_one_byte_then_idle",
                   "test_hostile: test_sends_and_never_reads", "test_hostile: test_reads_slowly")),
    27: Row("no descriptors, no memory", "`ulimit -n 40`; an allocator that fails",
            "new clients wait; checks are refused, OVERLOADED",
            load="single checks",
            tests=("test_open_files: test_a_low_limit_of_open_files_serves_fewer_clients",
                   "test_server: the_listener_is_armed_again_after_a_pause",
                   "test_redis_store: short_memory_is_overload_and_nothing_worse",
                   "test_session_memory: every_failing_allocation_is_answered_or_closes_over_a_slow_store")),
    28: Row("the log is not read", "standard error is a full pipe", "nothing", load="single checks",
            holds="`log_lines_dropped` counts",
            tests=("test_daemon: test_standard_error_that_nobody_reads_does_not_stop_the_daemon",)),
    29: Row("a clock steps by an hour",
            "a library of the tests, forward and back: the daemon's, then Redis'", "nothing", ("redis",),
            holds="limits follow Redis' clock; no more than the limit in a window, whatever the daemon's clock"),
    30: Row("the daemon itself stands still", "`kill -STOP` of the daemon for half a second", "answers when it goes on", ("redis",),
            ("deadline", "down", "breaker"), holds="watchdog messages stop with it, and go on afterwards"),
    31: Row("SIGTERM under load, twice; reloads of a broken file", "signals",
            "the drain's answers; the old configuration", load="steady",
            tests=("test_reload: test_a_storm_of_reloads_under_load_loses_no_answer",
                   "test_reload: test_a_broken_configuration_changes_nothing",
                   "test_outage: test_stopping_while_redis_stalls_answers_everything",
                   "test_daemon: test_a_second_signal_ends_a_drain_at_once",
                   "test_floods: test_a_drain_amid_floods")),
    33: Row("the socket's file is deleted, replaced, or its mode changed", "`rm`",
            "a connect is refused until it is made again", load="single checks",
            tests=("test_daemon: test_a_socket_that_is_deleted_is_made_again",
                   "test_daemon: test_a_socket_that_is_replaced_is_left_alone",
                   "test_daemon: test_a_socket_whose_directory_is_gone_comes_back_with_it")),
    34: Row("the daemon is killed and its socket's file stays", "`kill -9`",
            "a refused connect until it is started again", load="single checks",
            tests=("test_daemon: test_a_socket_left_by_a_killed_daemon_is_replaced",)),
    35: Row("a reply right at the deadline; the client has left; one msgid twice", "a simulation of all short schedules",
            "one answer", load="all short schedules, and random ones",
            tests=("test_engine_simulation: all_short_schedules_answer_each_check_once",
                   "test_engine_simulation: random_schedules_answer_each_check_once",
                   "test_outage: test_a_client_that_leaves_while_redis_stalls_harms_nobody",
                   "test_hostile: test_equal_msgids_of_two_clients")),
    36: Row("Redis evicts counters", "`allkeys-random` and little memory", "more is allowed than the limit", ("redis",),
            load="one key at its limit", holds="a warning names `maxmemory-policy`",
            tests=("test_self_test: test_a_redis_that_evicts_counters_is_a_warning",)),
}

HEAD = """# Faults, and what users see

Whatever Redis does, every check is answered once, by its deadline, by the policy's choice, with its source. When Redis is back,
decisions are exact again within a second, by themselves.

`./dev test faults` causes each fault below on real processes: the daemon under the sanitizers, and Redis as well as Valkey. It
generates this page. Meanwhile clients send checks, whether or not answers come; the *steady* load is three connections with a
check of each of four policies every 20 ms, one for each `on_failure`. For each row the tests require:

- **Once.** Each check has exactly one answer; nothing else comes back.
- **In time.** No answer comes later than its deadline, 100 ms. The tests allow a second more, because a busy machine may not run
  a process for that long; `./dev bench outage` measures it ([figures](operate-under-load.md#an-outage-of-redis)).
- **By the policy's choice.** `allow`, `deny`, `error` or `local`, with `source` and `reason`. The column *answers* has every
  `reason` that the tests accept; `redis` stands for decisions of Redis.
- **Not charged twice.** What Redis allowed is charged, and no more than that and what was on its way when it failed.
- **Exact again.** After the fault, twice as many checks as the limit of a fresh key are admitted exactly up to the limit. Redis is
  found with the second attempt at the latest; attempts are at most 500 ms apart, probes of the breaker 250 ms. After a refused
  password, with too many clients, and where TLS fails, attempts are at most 800 ms apart. An
  attempt whose packets vanish ends after a second, so that the next one may begin half a second later than promised.
- **Nothing is left.** No check in flight, no descriptor.

On a busy machine a healthy Redis may be late, too: `deadline`, `breaker` and `down` may come in every row. The numbers have gaps:
they are those of the project's list of faults, whose other rows need several servers.

"""


def rendered(proofs):
    lines = ["| # | fault | caused by | load | users see | answers | and |", "|---|---|---|---|---|---|---|"]
    for number, row in ROWS.items():
        lines.append(f"| {number} | {row.fault} | {row.how} | {row.load} | {row.sees} | {row.answers()} | {row.holds or '-'} |")
    lines += ["", "## The tests", "", "`./dev test NAME` runs one of them.", "", "| # | tests |", "|---|---|"]
    for number, row in ROWS.items():
        here = [f"`{name}`" for name in proofs.get(number, [])]
        lines.append(f"| {number} | {', '.join(here + [f'`{name}`' for name in row.tests])} |")
    return HEAD + "\n".join(lines) + "\n"


def proofs_of_this_folder():
    """The tests with @proves, by row, out of the text of the files: the page needs no server."""
    found = {}
    for path in tracked(ROOT, "test_*.py", below="tests/integration/faults"):
        for number, name in re.findall(r"^@proves\((\d+)\)\n(?:[@ ].*\n)*def (test_\w+)", path.read_text(), re.M):
            found.setdefault(int(number), []).append(f"{path.stem}: {name}")
    return found


def proves(number):
    return pytest.mark.proves(number)


def complaints():
    """Rows without a test, tests that do not exist, and a page that differs."""
    found, proofs = [], proofs_of_this_folder()
    files = {path.stem: path.read_text() for path in tracked(ROOT, "test_*.c", "test_*.py", below="tests")}
    for number, row in ROWS.items():
        if not row.tests and number not in proofs:
            found.append(f"fault_matrix.py: row {number} has no test")
        for test in row.tests:
            file, _, name = test.partition(": ")
            if not re.search(rf"^(def|static void) {name}\(", files.get(file, ""), re.M):
                found.append(f"fault_matrix.py: row {number} names {test}, which does not exist")
    found += [f"fault_matrix.py: row {number} does not exist, and a test proves it" for number in proofs if number not in ROWS]
    if not PAGE.exists() or PAGE.read_text() != rendered(proofs):
        found.append(f"{PAGE.relative_to(ROOT)}: not what {Path(__file__).relative_to(ROOT)} --write writes")
    return found


def main():
    if "--write" in sys.argv[1:]:
        PAGE.write_text(rendered(proofs_of_this_folder()))
    elif "--check" not in sys.argv[1:]:
        sys.exit(__doc__)
    for complaint in complaints():
        print(complaint, file=sys.stderr)
    return 1 if complaints() else 0


if __name__ == "__main__":
    sys.exit(main())
