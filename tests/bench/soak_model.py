"""soak_model.py: runs the model for any time, on schedules that no test has used, with every algorithm and every store.

    soak_model.py [--for 10m] [--seed N] [--traces N] [--on KIND]      `./dev soak model` ends up here

Two parts run at the same time, and each counts its decisions:

model          compares tests/model with the memory store and with the script in each server (merged, one check after
               another, and with the cache of denials in front of it), in every field. The compat presets run only in memory, because their windows are real time in Redis.
               Python decides everything again, so this makes some thousand decisions a second
differential   tests/replay/differential.c compares the script with the C algorithms on the memory store, in every field of
               every kind of op (checks, peeks, resets, refunds, at_most, request ids, reservations, slots), with clocks that
               step back, overrides, candidates, inline policies and reloads, in one trace of four with the cache of denials.
               It runs without Python, at some hundred thousand decisions a second. The soak prints the
               number of decisions of each kind at its end

A difference ends the soak. It prints the seed and step, and shrinks a trace of the model. The seeds begin with the time, or
at --seed. --traces ends each part after this number of traces, and --on takes one kind of server (to repeat a difference).
"""

import argparse
import re
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "model"))

import comparison  # noqa: E402
import traces  # noqa: E402
from harness import Redis, build_dir  # noqa: E402

CHUNK_S = 20
REPORT_S = 30
SEEDS = 10**6  # limit: keys contain the seed, and are short
MODEL_BATCH = 10  # traces of one algorithm at once
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def duration(text):
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; write e.g. 30s, 10m or 1h")
    return float(found.group(1)) * UNITS[found.group(2) or "s"]


def add_kinds(kinds, counts):
    """counts: [(kind, number of decisions, how many of them had the outcome, outcome), ...]"""
    for name, n, n_with_outcome, outcome in counts:
        before = kinds.get(name, (0, 0, outcome))
        kinds[name] = before[0] + int(n), before[1] + int(n_with_outcome), outcome


class Soak:
    def __init__(self, seconds, seed, traces_each):
        self.until = time.monotonic() + seconds
        self.seed, self.traces_each = seed, traces_each
        self.wrong = []
        self.by_model, self.by_script, self.script_s = 0, 0, 0.0
        self.kinds = {}  # kind of op -> (number of comparisons, how many had the outcome, outcome)

    def goes_on(self, n_done):
        if self.wrong:
            return False
        return n_done < self.traces_each if self.traces_each else time.monotonic() < self.until

    # ---- the model ----

    @staticmethod
    def ways(name, server):
        """(store, traces -> lines) for each way to run the algorithm."""
        yield "memory", lambda some: comparison.run_replay(comparison.text_of(some), "memory")
        for how in ((64, 1), (2, 0), (64, 1, 0)) if name not in traces.COMPAT else ():
            def decide(some, options=how):
                with server.client() as client:
                    client.flushall()
                return comparison.run_replay(comparison.text_of(some, for_server=True), "redis", server.socket, *options)
            yield server.kind, decide

    def model(self, server):
        n_done = 0
        while self.goes_on(n_done):
            for name in (*traces.EVERY, *traces.COMPAT, traces.MERGING, traces.UNDOING):
                if self.wrong:
                    return
                n = min(MODEL_BATCH, self.traces_each - n_done) if self.traces_each else MODEL_BATCH
                self.compare(name, range(self.seed + n_done, self.seed + n_done + n), server)
            n_done += MODEL_BATCH

    def compare(self, name, seeds, server):
        made = [traces.of_seed(name, seed) for seed in seeds]
        expected = [line for trace in made for line in trace.expected()]
        for where, decide in self.ways(name, server):
            answers = decide(made)
            self.by_model += len(answers)
            if comparison.first_difference(expected, answers) is None:
                continue
            alone = [comparison.complaint(name, trace, lambda t, d=decide: d([t]), where) for trace in made]
            self.wrong.append(next(filter(None, alone), f"{name}, {seeds} on {where}: a difference that no trace shows alone"))
            return

    # ---- the differential test ----

    def differential(self, server):
        seed = self.seed
        while self.goes_on(seed - self.seed):
            left = CHUNK_S if self.traces_each else max(1, min(CHUNK_S, self.until - time.monotonic()))
            most = [str(self.traces_each)] if self.traces_each else []
            done = subprocess.run([str(build_dir() / "tests" / "differential"), server.socket, str(seed), str(left), *most],
                                  capture_output=True, text=True)
            found = re.match(r"(\d+) decisions of (\d+) traces .* in ([\d.]+) s", done.stdout)
            if done.returncode or not found:
                self.wrong.append(f"differential: exit status {done.returncode}\n{done.stdout}{done.stderr}")
                return
            self.by_script += int(found.group(1))
            self.script_s += float(found.group(3))
            add_kinds(self.kinds, re.findall(r"(\w+) (\d+) \((\d+) ([a-z ]+)\)", done.stdout.splitlines()[1]))
            seed += int(found.group(2))

    # ---- both ----

    def guarded(self, part, server):
        """A part that breaks makes no more comparisons. That is a failure too."""
        try:
            part(server)
        except Exception:
            self.wrong.append(f"{part.__name__} broke:\n{traceback.format_exc()}")

    def run(self, kind):
        servers = [Redis(kind), Redis(kind)]
        try:
            parts = [threading.Thread(target=self.guarded, args=(part, server))
                     for part, server in zip((self.model, self.differential), servers)]
            for part in parts:
                part.start()
            reported = time.monotonic()
            for part in parts:
                while part.is_alive():
                    part.join(1)
                    if time.monotonic() - reported > REPORT_S:
                        reported = time.monotonic()
                        print(f"{kind}: {self.by_model:,} by the model, {self.by_script:,} by the differential test", flush=True)
        finally:
            for server in servers:
                server.close()


def main():
    parser = argparse.ArgumentParser(prog="./dev soak model", description="The model, for as long as asked.")
    parser.add_argument("--for", dest="seconds", type=duration, default=600, metavar="10m")
    parser.add_argument("--seed", type=int, default=int(time.time()) % SEEDS)
    parser.add_argument("--traces", type=int, default=0, help="the number of traces of each part, in place of a time")
    parser.add_argument("--on", choices=Redis.KINDS, help="only this kind of server")
    options = parser.parse_args()
    kinds = [kind for kind in Redis.KINDS if Redis.installed(kind) and options.on in (None, kind)]
    print(f"seeds from {options.seed}; {', '.join((*traces.EVERY, *traces.COMPAT, traces.MERGING, traces.UNDOING))}; memory, {', '.join(kinds)}", flush=True)
    n_wrong, by_model, by_script, script_s, by_kind = 0, 0, 0, 0.0, {}
    for kind in kinds:
        soak = Soak(options.seconds / len(kinds), options.seed, options.traces)
        soak.run(kind)
        for complaint in soak.wrong:
            print(f"soak model: {complaint}")
        n_wrong += len(soak.wrong)
        by_model, by_script, script_s = by_model + soak.by_model, by_script + soak.by_script, script_s + soak.script_s
        add_kinds(by_kind, [(name, *of) for name, of in soak.kinds.items()])
    print("differential: " + ", ".join(f"{name} {n:,} ({m:,} {what})" for name, (n, m, what) in by_kind.items()))
    rate = by_script / script_s if script_s else 0
    print(f"{by_model:,} decisions compared with the model; {by_script:,} of the script with the C algorithms, {rate:,.0f} a second; "
          f"{n_wrong} failed")
    sys.exit(1 if n_wrong or not by_model or not by_script else 0)


if __name__ == "__main__":
    main()
