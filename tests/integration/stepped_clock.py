"""stepped_clock.py: a clock of the host that a test steps while a process looks at it."""

import mmap
import subprocess
from pathlib import Path


class Clock:
    """What CLOCK_REALTIME a process sees that is started with `env`; its monotonic clock stays."""

    def __init__(self, folder):
        library, file = folder / "stepped_clock.so", folder / "ahead"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, Path(__file__).with_suffix(".c")], check=True)
        file.write_bytes(bytes(8))
        with open(file, "r+b") as both:
            self.ahead_s = memoryview(mmap.mmap(both.fileno(), 8)).cast("q")
        self.env = {"LD_PRELOAD": str(library), "STEPPED_CLOCK": str(file),
                    "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}

    def step(self, ahead_s):
        self.ahead_s[0] = ahead_s
