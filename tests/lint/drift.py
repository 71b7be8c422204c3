"""drift.py: what is listed in a table of the code and told in a document must be the same list."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def rows(path, macro):
    """The first argument of every MACRO(...) row of a .def file."""
    source = re.sub(r"/\*.*?\*/", "", (ROOT / path).read_text(), flags=re.S)
    return re.findall(rf"^(?:{macro})\((\w+)", source, re.M)


def document(path):
    return (ROOT / path).read_text() if (ROOT / path).exists() else ""


def untold(names, path):
    """A complaint for each name that the document does not contain as a word."""
    told = document(path)
    if not told:
        return [f"{path} is missing"]
    return [f"{path}: does not mention {name}" for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", told)]


def every_error_code_is_in_the_protocol():
    return untold(rows("proto/error.def", "ERROR_CODE"), "proto/PROTOCOL.md")


def every_counter_is_in_the_protocol():
    return untold(rows("src/base/counters.def", "COUNTER|GAUGE"), "proto/PROTOCOL.md")


def every_setting_is_in_its_manual_page():
    """The page's lists are generated; they must be what the tables would make now."""
    done = subprocess.run([sys.executable, "src/man/settings.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    return done.stderr.strip().splitlines() or ["src/man/settings.py failed"] if done.returncode else []


def every_command_of_the_script_is_among_the_rights_to_grant():
    header = document("src/store/redis_store.h")
    called = {command.lower() for path in sorted((ROOT / "lua").glob("*.lua"))
              for command in re.findall(r"\b(?:call|try)\('([A-Z]+)'", path.read_text())}
    return [f"src/store/redis_store.h: the rights lack +{command}" for command in sorted(called)
            if not re.search(rf"\+{command}\b", header)]


CHECKS = [every_error_code_is_in_the_protocol, every_counter_is_in_the_protocol, every_setting_is_in_its_manual_page,
          every_command_of_the_script_is_among_the_rights_to_grant]
