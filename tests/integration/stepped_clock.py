"""stepped_clock.py: a clock of the host that a test steps while a process looks at it."""

import mmap
import subprocess
from pathlib import Path


def build(source, folder):
    """(the library of a C file, a file with one number that its code reads, that number as a list of one)"""
    library, file = folder / f"{source.stem}.so", folder / f"{source.stem}.number"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    file.write_bytes(bytes(8))
    with open(file, "r+b") as both:
        return library, file, memoryview(mmap.mmap(both.fileno(), 8)).cast("q")


class Clock:
    """What CLOCK_REALTIME a process sees that is started with `env`; its monotonic clock stays."""

    def __init__(self, folder):
        library, file, self.ahead_s = build(Path(__file__).with_suffix(".c"), folder)
        self.env = {"LD_PRELOAD": str(library), "STEPPED_CLOCK": str(file),
                    "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}

    def step(self, ahead_s):
        self.ahead_s[0] = ahead_s
