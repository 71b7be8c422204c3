"""transcript.py: compares the transcript of `./dev run --once` in README.md (its first checks) with the present output, or
updates it.

    transcript.py           fail if the README's transcript differs from the present output of ./dev
    transcript.py --write   write the present output into the README

The comparison is word for word, except for remaining times.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
PLACE = re.compile(r"(?<=<!-- transcript -->\n```\n).*?(?=```\n<!-- end of transcript -->)", re.S)


def printed(patience_s=50):
    """The output of its first checks."""
    done = subprocess.run([str(ROOT / "dev"), "run", "--once"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=patience_s, stdin=subprocess.DEVNULL, cwd=ROOT)
    if done.returncode != 0:
        raise RuntimeError(done.stdout)
    return excerpt(done.stdout)


def excerpt(text):
    """From the first check to the first of another key."""
    return re.search(r"\$ ratelimitctl check .*?\n(?=\n\$ ratelimitctl check login bob)", text, re.S).group()


def comparable(text):
    """The lines, with a word for each time."""
    return re.sub(r"\b\d+(\.\d+)?(ms|s|m)\b", "TIME", text).splitlines()


def differences():
    """The differences between the README and the present output; empty if there are none."""
    shown, now = comparable(PLACE.search(README.read_text()).group()), comparable(printed())
    return [f"README.md shows {a!r}, ./dev run --once prints {b!r}" for a, b in zip(shown, now) if a != b] + (
        [] if len(shown) == len(now) else [f"README.md shows {len(shown)} lines, ./dev run --once prints {len(now)}"])


def main():
    if "--write" in sys.argv[1:]:
        text = printed()
        README.write_text(PLACE.sub(lambda _: text, README.read_text()))
        return 0
    found = differences()
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
