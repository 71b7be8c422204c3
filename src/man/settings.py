"""settings.py: the settings of ratelimitd.yaml(5), written from the tables that the daemon itself reads them by.

    settings.py            write them into ratelimitd.yaml.5
    settings.py --check    fail where the page lags behind the tables

The generated parts of the page are between the lines `.\\" begin NAME` and `.\\" end NAME`.
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SRC = HERE.parent
ROLES = re.search(r'ROLE_WORDS "(.*?)"', (SRC / "base/role.h").read_text()).group(1)
PAGE = HERE / "ratelimitd.yaml.5"
KINDS = {"TEXT": "text", "LIST": "list", "MODE": "octal", "SIZE": "size", "DURATION": "duration", "COUNT": "number",
         "BOOL": "true | false"}


class Word(str):
    """A bare word of a row is its own name, and so is what is made of words: BY_LIMIT(burst), PRINT | HASH."""

    def __call__(self, *arguments):
        return self

    def __or__(self, other):
        return self

    __ror__ = __or__


class Names(dict):
    def __missing__(self, name):
        return Word(name)


def rows(table, macro):
    """The arguments of every macro(...) row. The rows are C; as Python expressions they say the same."""
    source = re.sub(r"/\*.*?\*/", "", (SRC / table).read_text(), flags=re.S)
    found = []
    eval("(" + re.sub(rf"^(?={macro}\()", ",", source, flags=re.M).strip().lstrip(",") + ",)", {},
         Names({macro: lambda *row: found.append(row), "ZERO_IS": str, "INSTEAD": str, "ROLE_WORDS": ROLES}))
    return found


def roff(text):
    """Text as running mdoc: escaped, one sentence a line."""
    text = text.replace("\\", "\\e").replace(". ", ".\n")
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in text.split("\n"))


def amount(kind, value):
    """A bound as it would be written."""
    units = {"SIZE": [(1, "B"), (2**10, "KiB"), (2**20, "MiB"), (2**30, "GiB")],
             "DURATION": [(1, "ms"), (1000, "s"), (60000, "m"), (3600000, "h"), (86400000, "d")]}.get(kind, [(1, "")])
    factor, unit = max((factor, unit) for factor, unit in units if value % factor == 0 or factor == 1)
    return f"{value // factor}{unit}" if value else "0"


def settings():
    lines = []
    for kind, _field, path, default, low, high, words, when, text in rows("config/settings.def", "SETTING"):
        words = words.split() if kind in ("CHOICE", "COUNT") else []
        what = " | ".join(words if kind == "CHOICE" else [*words, KINDS[kind]])
        bounds = f", {amount(kind, low)} to {amount(kind, high)}" if kind in ("SIZE", "DURATION", "COUNT") else ""
        lines += [f".It Cm {path} : Ar {what}", roff(text),
                  f"{'Default ' + default if default else 'Not set by default'}{bounds};"
                  f" {'can be reloaded' if when == 'RELOAD' else 'a change needs a restart'}."]
    return lines


def policy_settings():
    lines = []
    for _id, name, *_columns, takers, text in rows("policy/policy_settings.def", "POLICY_SETTING"):
        where = [] if takers == "every policy" else [f"In {takers}."]
        lines += [f".It Cm {name}", *where, roff(text)]
    return lines


def access_settings():
    lines = []
    for kind, field, low, high, words, text in rows("config/access_settings.def", "ACCESS_SETTING"):
        what = " | ".join(words.split()) if kind == "CHOICE" else KINDS[kind]
        bounds = [f"{low} to {high}."] if kind == "COUNT" else []
        lines += [f".It Cm {field} : Ar {what}", roff(text), *bounds]
    return lines


def generated(page):
    for name, lines in (("settings", settings()), ("policy settings", policy_settings()), ("access settings", access_settings())):
        block = "\n".join([".Bl -tag -width Ds", *lines, ".El"])
        page, n = re.subn(rf'(?<=^\.\\" begin {name}\n).*?(?=^\.\\" end {name}$)', lambda _: block + "\n", page,
                          flags=re.M | re.S)
        assert n == 1, f"{PAGE.name} has no place for: {name}"
    return page


def main():
    present = PAGE.read_text()
    wanted = generated(present)
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(wanted)
    elif present != wanted:
        sys.exit(f"{PAGE} lags behind the tables of settings; run {Path(__file__).name}")


if __name__ == "__main__":
    main()
