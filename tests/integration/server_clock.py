"""server_clock.py: the TIME of real servers, which a test sets."""

from pathlib import Path

from stepped_clock import build


class ServerClock:
    """What servers answer to TIME that were started with `arguments`: .us, in microseconds, the same for all of them."""

    def __init__(self, folder):
        module, file, self._now = build(Path(__file__).with_suffix(".c"), folder)
        self.arguments = ["--loadmodule", str(module), str(file)]

    @property
    def us(self):
        return self._now[0]

    @us.setter
    def us(self, now):
        self._now[0] = now
