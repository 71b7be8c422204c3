"""transcript.py: what README.md shows of `./dev run --once` (its first checks), compared with what it prints, or written
anew.

    transcript.py           fail where the README's transcript is not what ./dev prints now
    transcript.py --write   put what it prints into the README

Compared word for word, but for the times that are left.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
PLACE = re.compile(r"(?<=<!-- transcript -->\n```\n).*?(?=```\n<!-- end of transcript -->)", re.S)


def printed(patience_s=50):
    """What it prints of its first checks."""
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
    """What the README shows otherwise than it is; empty when nothing is."""
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
