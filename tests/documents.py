"""documents.py: the snippets of README.md and docs/*.md, for the tests that run them.

    documents.py --write    write the present output of the commands into the console snippets

A page is a list of blocks: language, text, and the configuration above it. The commands of a console snippet (lines that begin
with `$ `) run on a daemon with that configuration and --test-clock, so every run has the same output, in a folder with that
configuration and the files above it. Snippets below the same
configuration share its daemon.
"""

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^(?:<!-- (?P<mark>[^\n]*?) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
SETTINGS = ("policies", "store", "access", "admin", "listen", "defaults", "inline", "log", "caps", "drain", "keys")


@dataclass(frozen=True)
class Block:
    page: str
    number: int
    mark: str  # of a comment above it: <!-- mark -->
    language: str
    text: str
    configuration: str | None  # the last one above it
    span: tuple
    files: tuple = ()  # ((name, text), ...) of the files above it: <!-- file: NAME -->

    @property
    def is_configuration(self):
        return self.language == "yaml" and self.text.split(":")[0] in SETTINGS


def blocks_of(path):
    blocks, configuration, files = [], None, {}
    for number, found in enumerate(FENCE.finditer(path.read_text())):
        block = Block(path.name, number, found["mark"] or "", found["language"], found["text"], configuration,
                      found.span("text"), tuple(files.items()))
        if block.is_configuration:
            configuration = block.text
        if block.mark.startswith("file: "):
            files[block.mark.removeprefix("file: ")] = block.text
        blocks.append(block)
    return blocks


def all_blocks():
    return [block for path in PAGES for block in blocks_of(path)]


def calls_of(text):
    """[(command, the output below it)] of a console snippet."""
    calls = []
    for line in text.splitlines(keepends=True):
        if line.startswith("$ "):
            calls.append([line[2:].rstrip("\n"), ""])
        else:
            calls[-1][1] += line
    return [tuple(call) for call in calls]


def printed(block, socket, programs):
    """The snippet with the present output of its commands, on the daemon of that socket, next to the configuration and the files
    above it."""
    with tempfile.TemporaryDirectory() as place:
        for name, content in [("ratelimitd.yaml", block.configuration or ""), *block.files]:
            (Path(place) / name).write_text(content)
        return outputs(block, socket, programs, place)


def outputs(block, socket, programs, place):
    env = {**os.environ, "RATELIMIT_SOCKET": socket, "PATH": f"{programs}:{os.environ['PATH']}"}
    text = ""
    for command, _ in calls_of(block.text):
        done = subprocess.run(["sh", "-c", command], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              stdin=subprocess.DEVNULL, timeout=30, cwd=place)
        text += f"$ {command}\n{done.stdout}"
    return text


def write_page(path):
    sys.path.insert(0, str(ROOT / "tests" / "integration"))
    from harness import Ratelimitd, build_dir

    page, daemon, configuration = path.read_text(), None, None
    replacements = []
    for block in blocks_of(path):
        if block.language != "console":
            continue
        if daemon is None or block.configuration is not configuration:
            if daemon is not None:
                daemon.close()
            configuration = block.configuration
            daemon = Ratelimitd(configuration, arguments=["--test-clock"])
        replacements.append((block.span, printed(block, daemon.socket, build_dir() / "bin")))
    if daemon is not None:
        daemon.close()
    for (start, end), text in reversed(replacements):
        page = page[:start] + text + page[end:]
    path.write_text(page)


if __name__ == "__main__":
    if "--write" not in sys.argv[1:]:
        sys.exit(__doc__)
    for page_path in PAGES:
        write_page(page_path)
