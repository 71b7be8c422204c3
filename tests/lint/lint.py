"""lint.py: each check is a function with the name of its rule. It returns complaints, one per line, or nothing.

    lint.py [--junit FILE] [NAME...]     all checks, or those whose name contains a NAME
    lint.py [--junit FILE] --all         all, with clang-tidy over every file; if all pass, tests/lint/clean names this commit

A check whose tool is not installed fails: nobody tested the rule.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.sax.saxutils import escape

import drift
import tidy
from tracked import tracked

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "packaging"))
import release  # noqa: E402
LONGEST_FILE = {"src": 1000, "tests": 900, "clients": 900}  # lines; the aim is about 500

CHECKS = []
EVERYTHING = False  # --all


def check(function):
    CHECKS.append(function)
    return function


def files(*patterns, within=("src", "proto", "lua", "tests", "systemd", "clients", "packaging")):
    """Paths of the project's own files that match, relative to its root."""
    return sorted(str(path.relative_to(ROOT)) for folder in within for path in tracked(ROOT, *patterns, below=folder))


def text(path):
    return (ROOT / path).read_text(errors="replace")


def tool(*argv, env=None):
    """The complaints of a tool; nothing if it has none."""
    try:
        done = subprocess.run(argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", env=env)
    except FileNotFoundError:
        return [f"{argv[0]} is not installed"]
    return done.stdout.strip().splitlines() or [f"{argv[0]}: exit status {done.returncode}"] if done.returncode else []


def in_parallel(function, items):
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return [line for lines in pool.map(function, items) for line in lines]


# ---- tools ------------------------------------------------------------------------------------------------------


@check
def c_is_formatted():
    """The clang-format of tests/requirements.txt has nothing to change."""
    return tool(str(Path(sys.executable).parent / "clang-format"), "--dry-run", "-Werror", *files("*.c", "*.h"))


@check
def clang_tidy_finds_nothing():
    """The checks of .clang-tidy, over the files of src/ and proto/ that differ from a commit where it found nothing: tidy.py."""
    lines = tool("cmake", "--preset", "clang")
    if lines:
        return lines
    sources, why = (files("*.c", within=tidy.SOURCES), "all files") if EVERYTHING else tidy.to_read(ROOT)
    print(f"     clang-tidy reads {why}", flush=True)
    return in_parallel(lambda path: tool(*tidy.COMMAND, path), sources)


@check
def cppcheck_finds_nothing():
    return tool("cppcheck", "--quiet", "--error-exitcode=1", "--enable=warning,performance,portability", "--inline-suppr",
                "--std=c11", "-j", str(os.cpu_count() or 1), "-I", ".", "-I", "src", "-D_GNU_SOURCE",
                "--suppress=missingIncludeSystem", "--suppress=normalCheckLevelMaxBranches",
                "--template={file}:{line}: {severity}: {message} ({id})", *files("*.c", within=("src", "proto")))


@check
def shell_is_plain_and_quoted():
    scripts = [*files("*.sh"), *map(str, sorted((ROOT / "debian").glob("ratelimitd.p*inst"))), "debian/ratelimitd.prerm"]
    scripts = [os.path.relpath(path, ROOT) for path in scripts]
    return tool("shellcheck", "-x", "dev", ".ci/run", *scripts) + tool("dash", "-n", "dev")


@check
def the_stitched_script_compiles():
    if not (ROOT / "lua" / "stitch.py").exists():
        return ["lua/stitch.py is missing"]
    with tempfile.TemporaryDirectory() as place:
        lines = tool(sys.executable, "lua/stitch.py", str(ROOT), f"{place}/ratelimit.lua", f"{place}/batch_script.c")
        return lines or tool("luac5.1", "-p", f"{place}/ratelimit.lua")


@check
def python_compiles_without_warnings():
    complaints = []
    for path in files("*.py"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                compile((ROOT / path).read_text(), path, "exec")
        except (SyntaxError, Warning) as error:
            complaints.append(f"{path}: {error}")
    return complaints


@check
def systemd_accepts_the_units():
    units = files("*.service", "*.socket", within=("systemd",))
    if not units:
        return ["systemd/ has no units"]
    with tempfile.TemporaryDirectory() as place:
        copies = []
        for unit in units:  # the program is not installed here; for the syntax, any program is enough
            copy = Path(place) / Path(unit).name
            copy.write_text(re.sub(r"^(Exec\w+=[-@:+!]*)/usr\S*/ratelimitd\b", r"\1/bin/true", text(unit), flags=re.M))
            copies.append(str(copy))
        return tool("systemd-analyze", "verify", "--man=no", *copies)


@check
def man_pages_are_well_formed():
    pages = [path for path in files("*.[1-8]", within=("src", "systemd", "proto", "man"))]
    if not pages:
        return ["there are no man pages"]
    return tool("mandoc", "-Tlint", "-Wwarning", *pages)


# ---- rules of the project ---------------------------------------------------------------------------------------

LAYERS = {"base": 0, "proto": 0, "limit": 1, "policy": 1.1, "store": 1.2, "redis": 1.3, "engine": 2, "server": 3, "config": 3, "admin": 3, "daemon": 4, "ratelimitd.c": 4}
SEPARATE = {"client": {"client", "proto", "base"}, "ctl": {"ctl", "client", "proto", "base", "policy", "limit", "config"}}
LIBRARY_HEADERS = {  # header: the files that may include it
    r"uv\.h": r"src/server/|src/admin/|src/redis/|src/daemon/|src/ratelimitd\.c",
    r"hiredis/": r"src/redis/",
    r"openssl/": r"src/redis/tls",
    r"msgpack": r"proto/|src/client/",
    r"llhttp\.h": r"src/admin/",
    r"yaml\.h": r"src/config/",
    r"glib": r"src/limit/calendar\.c",
}


def module_of(path):
    parts = Path(path).parts
    return parts[1] if parts[0] == "src" else parts[0]


@check
def a_file_includes_only_its_own_layer_or_lower_ones():
    complaints = []
    for path in files("*.c", "*.h", within=("src", "proto")):
        here = module_of(path)
        for number, line in enumerate(text(path).splitlines(), 1):
            own = re.match(r'#include "([^"/]+)/', line)
            there = own.group(1) if own else None
            if not there or there == here:
                continue
            if here in SEPARATE or there in SEPARATE:
                wrong = there not in SEPARATE.get(here, ())
            elif there not in LAYERS or here not in LAYERS:
                wrong = True
            else:
                wrong = LAYERS[there] > LAYERS[here] or (LAYERS[here] == 3 and LAYERS[there] == 3)
            if wrong:
                complaints.append(f"{path}:{number}: {here} must not include {there}")
    return complaints


@check
def calls_go_one_way():
    """No two folders need each other, directly or through others, nor do files of one folder, unless all files of the circle
    include one private header (x_private.h): then they are one module. Results come back through a callback (`done`)."""
    sources = files("*.c", within=("src", "proto"))
    daemon = [path for path in sources if not path.startswith(("src/client/", "src/ctl/"))]
    clients = [path for path in sources if path.startswith(("src/client/", "src/ctl/", "src/base/", "proto/"))]
    complaints = set()
    for paths in daemon, clients:
        needs = calls_between(paths)
        folders = {module_of(path): set() for path in paths}
        for path, others in needs.items():
            folders[module_of(path)] |= {module_of(other) for other in others}
        inside = {path: {other for other in others if module_of(other) == module_of(path)} for path, others in needs.items()}
        modules = [circle for circle in circles(inside) if not set.intersection(*map(private_headers, circle))]
        complaints |= {f"{' <-> '.join(sorted(circle))}: is a circle; let calls go down and results come up through a callback"
                       for circle in circles(folders) + modules}
    return sorted(complaints)


@check
def a_private_header_stays_in_its_folder():
    return [f"{path}: must not include {header}" for path in files("*.c", "*.h", within=("src", "proto"))
            for header in sorted(private_headers(path)) if header.split("/")[0] != module_of(path)]


def private_headers(path):
    return set(re.findall(r'^#include "(\S+_private\.h)"', text(path), re.M))


def calls_between(paths):
    """For each file those in which a function is defined that it names."""
    code = {path: re.sub(r'/\*.*?\*/|"(?:\\.|[^"\\])*"', " ", text(path), flags=re.S) for path in paths}
    home = {name: path for path, content in code.items()
            for name in re.findall(r"^(?!static\b|typedef\b)\w[\w *]*?\b(\w+)\([^;{}]*\)\n\{", content, re.M)}
    return {path: {home[word] for word in set(re.findall(r"\b\w+\b", content)) & home.keys()} - {path}
            for path, content in code.items()}


def circles(needs):
    """The sets of those that need one another, directly or through others."""
    reached = {}
    for start in needs:
        reached[start], waiting = set(), [start]
        while waiting:
            found = needs[waiting.pop()] - reached[start]
            reached[start] |= found
            waiting += found
    return [set(circle) for circle in {frozenset(other for other in reached[one] if one in reached[other]) for one in needs}
            if len(circle) > 1]


@check
def a_library_is_included_only_where_it_is_allowed():
    complaints = []
    for path in files("*.c", "*.h", within=("src", "proto")):
        for number, line in enumerate(text(path).splitlines(), 1):
            for header, where in LIBRARY_HEADERS.items():
                if re.match(rf'#include [<"]{header}', line) and not re.match(where, path):
                    complaints.append(f"{path}:{number}: {line.strip()} is allowed only in {where}")
    return complaints


@check
def lower_layers_never_exit_or_log_above_debug():
    complaints = []
    for path in files("*.c", within=("src", "proto")):
        if LAYERS.get(module_of(path), 4) > 2 or path == "src/base/log.c":
            continue
        for number, line in enumerate(text(path).splitlines(), 1):
            if re.search(r"\b(exit|_exit|abort|log_error|log_warning|log_info)\(|LOG_LEVEL_(ERROR|WARNING|INFO)", line):
                complaints.append(f"{path}:{number}: {line.strip()}")
    return complaints


# Where keys pass: log_key.h itself, and what is no client's key but one of a configuration.
WRITES_KEYS = ("src/base/log_key.c", "src/policy/faults.c")
# A key may be the user of an address, and keys.in_log and keys.in_views decide who sees it.
THE_WAY_OUT = re.compile(r"\b(log_key|log_key_in_view|log_key_hash|kept_key_shown)\((?:[^()]|\([^()]*\))*\)")


def keys_on_another_way(source):
    """The statements of a C file that log or pack a client's key by another function than those of log_key.h."""
    code = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), source, flags=re.S)
    for begin in re.finditer(r"\b(?:log_(?:debug|info|warning|error|sampled|limited)|pack_(?:str|bin|text)\w*)\(", code):
        statement = code[begin.start():code.find(";", begin.start())]
        rest = THE_WAY_OUT.sub("", re.sub(r'"(?:[^"\\]|\\.)*"', "", statement))
        if re.search(r"\bkey\b|\bkept\b", rest):
            yield code[:begin.start()].count("\n") + 1, " ".join(statement.split())


@check
def keys_leave_through_log_key_alone():
    return [f"{path}:{number}: {statement}" for path in files("*.c", within=("src",))
            if path not in WRITES_KEYS and module_of(path) not in SEPARATE
            for number, statement in keys_on_another_way(text(path))]


@check
def memory_is_allocated_through_base_alloc():
    complaints = []
    for path in files("*.c", within=("src", "proto")):
        if path == "src/base/alloc.c" or module_of(path) in SEPARATE:
            continue
        for number, line in enumerate(text(path).splitlines(), 1):
            code = re.sub(r"/\*.*?\*/|^\s*\*.*|//.*", "", line)
            if re.search(r"(?<![\w.>])(malloc|calloc|realloc|free|strdup|strndup|asprintf)\(", code):
                complaints.append(f"{path}:{number}: {line.strip()}")
    return complaints


@check
def every_module_begins_with_a_comment():
    """What it does, for whom. A test's, in its header, too."""
    def is_explained(path):
        return (ROOT / path).exists() and text(path).lstrip().startswith(("/*", "--"))

    return [f"{path}: does not begin with a comment" for path in files("*.c", "*.h", "*.def", "*.lua")
            if not is_explained(path) and not (path.startswith("tests/") and is_explained(path[:-1] + "h"))]


@check
def no_file_is_too_long():
    complaints = []
    for path in [*files("*.c", "*.h", "*.lua", "*.py"), "dev"]:
        lines = text(path).count("\n")
        most = LONGEST_FILE.get(Path(path).parts[0], LONGEST_FILE["src"])
        if lines > most:
            complaints.append(f"{path}: {lines} lines, more than {most}")
    return complaints


@check
def no_open_tasks_in_the_text():
    marks = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
    return [f"{path}:{number}: {line.strip()}" for path in every_text_file()
            for number, line in enumerate(text(path).splitlines(), 1) if marks.search(line)]


REPLACED_WORDS = {  # those that were here, and what says the same in plain words
    r"rooms?": "available (units), space (buffers), module (code)",
    r"twins?": "counterpart",
    r"worlds?": "fixture",
    r"askers?": "client, caller",
    r"beside": "next to, with",
    r"can(?:not)? be had": "is (not) available",
    r"so long": "as long as, that long",
    r"last words": "final error",
    r"who(?:m)?ever": "the one that",
    r"told": "reported, was asked to",
}


@check
def replaced_words_do_not_come_back():
    """In the code and the documents that users read: short main clauses, the field's terms."""
    paths = [path for path in every_text_file() if not path.startswith(("tests/", "clients/"))]
    return [f"{path}:{number}: `{match.group()}`: write {instead}"
            for path in paths for number, line in enumerate(text(path).splitlines(), 1)
            for word, instead in REPLACED_WORDS.items() for match in re.finditer(rf"\b{word}\b", line, re.I)]


@check
def no_package_archive_is_named():
    """./dev asks the system for the address of its package archive."""
    host = re.compile(r"\b(deb|security|archive|snapshot|ftp)\.(\w+\.)?(debian\.org|ubuntu\.com)")
    return [f"{path}: names {match.group()}" for path in every_text_file() for match in host.finditer(text(path))]


@check
def text_has_no_trailing_blanks_or_tabs():
    complaints = []
    for path in every_text_file():
        content = text(path)
        if content and not content.endswith("\n"):
            complaints.append(f"{path}: no newline at the end")
        for number, line in enumerate(content.split("\n"), 1):
            if line != line.rstrip() or "\t" in line and not path.endswith((".bin", "Makefile")):
                complaints.append(f"{path}:{number}: blanks at the end, or a tab")
    return complaints


def every_text_file():
    top_level = [name for name in ("dev", ".ci/run", "CMakeLists.txt", "CMakePresets.json", "README.md", "ARCHITECTURE.md",
                                   "CONTRIBUTING.md", "CHANGELOG.md") if (ROOT / name).exists()]
    return top_level + files("*.md", "*.svg", within=("docs",)) + files("*.c", "*.h", "*.def", "*.lua", "*.py", "*.md", "*.txt",
                                                                        "*.yaml", "*.cmake", "*.service", "*.socket", "*.conf",
                                                                        "*.in", "*.[1-8]")


@check
def every_version_is_that_of_the_table():
    return tool(sys.executable, "packaging/version.py", "check")


@check
def every_package_has_the_license():
    return release.license_complaints()


# ---- documents against tables -----------------------------------------------------------------------------------

for drift_check in drift.CHECKS:
    check(drift_check)


# ---- running them -----------------------------------------------------------------------------------------------


def report(path, results):
    failures = sum(bool(complaints) for _, complaints, _ in results)
    lines = [f'<testsuite name="lint" tests="{len(results)}" failures="{failures}" errors="0" skipped="0">']
    for name, complaints, seconds in results:
        lines.append(f'<testcase classname="lint" name="{name}" time="{seconds:.2f}">')
        if complaints:
            lines.append(f"<failure>{escape(chr(10).join(complaints))}</failure>")
        lines.append("</testcase>")
    Path(path).write_text("\n".join([*lines, "</testsuite>"]) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--junit", metavar="FILE")
    parser.add_argument("--all", action="store_true", help="clang-tidy over every file, too")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if options.all and options.names:
        parser.error("--all takes no NAME")
    global EVERYTHING
    EVERYTHING = options.all
    results = []
    for function in CHECKS:
        name = function.__name__.replace("_", " ")
        if options.names and not any(wanted.replace("_", " ") in name for wanted in options.names):
            continue
        started = time.monotonic()
        complaints = function()
        results.append((name, complaints, time.monotonic() - started))
        print(f"{'FAIL' if complaints else 'ok  '} {name} ({results[-1][2]:.1f} s)", flush=True)
        for line in complaints[:40]:
            print(f"     {line}")
        if len(complaints) > 40:
            print(f"     ... and {len(complaints) - 40} more")
    if options.junit:
        report(options.junit, results)
    failed = not results or any(complaints for _, complaints, _ in results)
    if options.all and not failed:
        refused = tidy.write_clean(ROOT)
        print(f"{tidy.CLEAN} stays as it is: {refused}" if refused else f"{tidy.CLEAN} names this commit: commit it")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
