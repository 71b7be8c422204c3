"""visitors.py: those who watch a daemon over HTTP, for bench.py: idle connections, and a scrape a second.

The daemon ends an idle connection after admin.timeout, or for a newer one; another one follows within 0.5 s.
"""

import os
import re
import select
import threading
from pathlib import Path

from http_client import ask, connect

N_IDLE = 64
LOOK_S, SCRAPE_S = 0.5, 1.0
LINES = 1200  # of the page, at least
N_PAGES = 200
CONFIG = 'admin: {listen: "127.0.0.1:0"}\n'
POLICIES = "".join(f"  watched{i}: {{algorithm: token_bucket, limit: 100, window: 1m}}\n" for i in range(110))


class Visitors:
    """A context in which they are there."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.n_scrapes = self.n_idle = 0
        self.ended = threading.Event()
        self.threads = [threading.Thread(target=self.idle), threading.Thread(target=self.scrape)]

    def idle(self):
        idle = []
        while not self.ended.wait(LOOK_S if idle else 0):
            for one in select.select(idle, [], [], 0)[0]:
                one.close()
                idle.remove(one)
            while len(idle) < N_IDLE:
                idle.append(connect(self.daemon))
                self.n_idle += 1
        for one in idle:
            one.close()

    def scrape(self):
        until_next = 0
        while not self.ended.wait(until_next):
            page = ask(self.daemon, "/metrics").text
            if page.count("\n") >= LINES and "\nprocess_max_fds " in page:
                self.n_scrapes += 1
            until_next = SCRAPE_S

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join()


# ---- how long a page holds the loop -------------------------------------------------------------------------------


def over_http(daemon, _):
    """HTTP"""
    return ask(daemon, "/metrics").text


def by_method(_, client):
    """the method metrics"""
    answer = client.call("metrics")
    text = answer["text"]
    while "next" in answer:
        answer = client.call("metrics", answer["next"])
        text += answer["text"]
    return text


def take_its_processor(daemon):
    """No other process may have a processor instead of the daemon in the middle of a tick: such a tick would be as long as the
    other one ran, most often the client that reads the page. False: only root may ask for that."""
    try:
        os.sched_setscheduler(daemon.pid, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        return False
    return True


def ticks_of(daemon, way):
    """The daemon's ticks while a page is asked for again and again: how many a page, and how long they were."""
    def n_ticks(series):
        return int(re.search(rf"^ratelimitd_loop_tick_seconds_{series} (\d+)$", by_method(daemon, client), re.M)[1])

    def n_long_ticks():
        return n_ticks("count") - n_ticks(r'bucket\{le="0.00025"\}')

    with daemon.client() as client:
        before, before_long = n_ticks("count"), n_long_ticks()  # the start has a long one
        pages = [way(daemon, client) for _ in range(N_PAGES)]
        stats = client.call("stats")  # of the last minute: nothing else has happened
        lines = min(page.count("\n") for page in pages)
        return {"lines": lines, "ticks": (n_ticks("count") - before) / N_PAGES, "long": n_long_ticks() - before_long,
                **{f"{name}_us": stats[f"tick_{name}_us"] for name in ("p50", "p99", "p999")}}


# ---- memory -------------------------------------------------------------------------------------------------------


def private_kib(daemon):
    """Memory that is the daemon's alone: neither program nor library, which all processes share as they are in the file."""
    return int(re.search(r"^Anonymous:\s+(\d+) kB", Path(f"/proc/{daemon.pid}/smaps_rollup").read_text(), re.M)[1])
