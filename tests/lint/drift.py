"""drift.py: a table of the code and the document that describes it must list the same names."""

import re
import subprocess
import sys
from pathlib import Path

from tracked import tracked

ROOT = Path(__file__).resolve().parent.parent.parent


def rows(path, macro):
    """The first argument of every MACRO(...) row of a .def file."""
    source = re.sub(r"/\*.*?\*/", "", (ROOT / path).read_text(), flags=re.S)
    return re.findall(rf"^(?:{macro})\((\w+)", source, re.M)


def document(path):
    return (ROOT / path).read_text() if (ROOT / path).exists() else ""


def missing_names(names, path):
    """A complaint for each name that the document does not contain as a word."""
    content = document(path)
    if not content:
        return [f"{path} is missing"]
    return [f"{path}: does not mention {name}" for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", content)]


def every_error_code_is_in_the_protocol():
    return missing_names(rows("proto/error.def", "ERROR_CODE"), "proto/PROTOCOL.md")


def every_counter_is_in_the_protocol():
    headers = [path.read_text() for path in tracked(ROOT, "*.h", below="src") if "COUNTERS_DECLARE(" in path.read_text()]
    names = [name for text in headers for name in re.findall(r"^ +(?:COUNTER|GAUGE)\((\w+),", text, re.M)]
    return missing_names(names, "proto/PROTOCOL.md") if names else ["src: no lists of counters found"]


def every_setting_is_in_its_manual_page():
    """The page's lists are generated. They must be equal to what the tables generate now."""
    done = subprocess.run([sys.executable, "src/man/settings.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    return done.stderr.strip().splitlines() or ["src/man/settings.py failed"] if done.returncode else []


def every_fault_has_its_tests_and_its_row():
    """docs/faults.md is generated. It must be equal to what the matrix generates now."""
    done = subprocess.run([sys.executable, "tests/integration/faults/fault_matrix.py", "--check"], cwd=ROOT, capture_output=True,
                          text=True)
    return done.stderr.strip().splitlines() or ["fault_matrix.py failed"] if done.returncode else []


def every_policy_setting_of_an_answer_is_in_the_protocol():
    table = re.sub(r"/\*.*?\*/", "", document("src/policy/policy_settings.def"), flags=re.S)
    settings = re.findall(r'^POLICY_SETTING\(\w+, "(\w+)", \w+, (\w+),(.*?)(?=^POLICY_SETTING|\Z)', table, re.M | re.S)
    section = re.search(r"^### policies$.*?(?=^### )", document("proto/PROTOCOL.md"), re.M | re.S).group()
    names = [name + ("_ms" if kind in ("SPAN", "DURATION") else "") for name, kind, row in settings
             if re.search(r"\bANSWER(_SET)?\b", row)]
    complaints = [f"proto/PROTOCOL.md: policies does not mention {name}" for name in names if f"`{name}`" not in section]
    return complaints if names else ["src/policy/policy_settings.def: no settings found"]


CLIENT_SETTINGS = {  # where a client lists the settings of an inline policy: it refuses others
    "clients/go/settings.go": r"^var settingNames = [^}]*}",
    "clients/lua/ratelimitd/limit.lua": r"^local SETTINGS = .*?^}",
    "clients/node/src/policies.ts": r"^const OTHERS = .*?^\]",
    "clients/python/src/ratelimitd/limits.py": r"^class InlineSettings.*?(?=^class )",
}


def every_setting_of_an_inline_policy_is_in_the_clients():
    """limit and window have options of their own; `by` and lists are for clients that take a policy as a map; compat policies
    are not allowed inline."""
    table = re.sub(r"/\*.*?\*/", "", document("src/policy/policy_settings.def"), flags=re.S)
    rows = re.findall(r'^POLICY_SETTING\(\w+, "(\w+)", (\w+), (\w+),', table, re.M)
    needed = [name for name, place, kind in rows if place != "IN_LIST" and kind not in ("PARTS", "LIST")
              and name not in ("limit", "window", "compat", "key_prefix")]
    complaints = [] if needed else ["src/policy/policy_settings.def: no settings found"]
    for path, pattern in CLIENT_SETTINGS.items():
        listed = " ".join(re.findall(pattern, document(path), re.M | re.S))
        complaints += [f"{path}: the list of settings lacks {name}" for name in needed if not re.search(rf"\b{name}\b", listed)]
    return complaints


def commands_of_the_script():
    return sorted({command for path in tracked(ROOT, "*.lua", "stitch.py", below="lua")
                   for command in re.findall(r"\b(?:call|try)\('([A-Z]+)'", path.read_text())})


def every_redis_command_of_the_script_is_in_the_rights():
    return [f"{path}: the rights lack +{command.lower()}" for path in ("src/redis/store.h", "docs/redis.md")
            for command in commands_of_the_script() if not re.search(rf"\+{command.lower()}\b", document(path))]


def every_redis_command_of_the_script_is_in_the_self_test():
    asked = set(re.findall(r'\{\{"([A-Z]+)"', document("src/redis/self_test.c")))
    return [f"src/redis/self_test.c: does not try {command}" for command in commands_of_the_script()
            if command not in asked]


def every_method_is_in_the_protocol():
    names = rows("proto/methods.def", "METHOD")
    sections = set(re.findall(r"^### (\w+)$", document("proto/PROTOCOL.md"), re.M))
    complaints = [f"proto/PROTOCOL.md: no section for the method {name}" for name in names if name not in sections]
    return complaints if names else ["proto/methods.def: no methods found"]


def every_command_is_in_the_manual_page():
    table = re.search(r"^static const struct command commands\[\].*?^};", document("src/ctl/ratelimitctl.c"), re.M | re.S)
    names = re.findall(r'^\s*{"([\w-]+)",\s*"', table.group(), re.M) if table else []  # NULL: an unsupported command
    page = document("src/ctl/ratelimitctl.1").replace("\\-", "-")
    complaints = [f"src/ctl/ratelimitctl.1: does not mention {name}" for name in names if not re.search(rf"(?m)^\..*\b{name}\b", page)]
    return complaints if names else ["src/ctl/ratelimitctl.c: no table of commands found"]


def every_word_of_a_test_file_is_in_its_documents():
    methods, fields = rows("src/ctl/test_methods.def", "TEST_METHOD"), re.findall(r"^TEST_FIELD\(\w+, (\w+)", document("src/ctl/test_fields.def"), re.M)
    words = re.search(r"^static const char \*const words\[\] = {(.*?)}", document("src/ctl/test_file.c"), re.M | re.S)
    names = [*methods, *fields, *re.findall(r'"(\w+)"', words.group(1) if words else "")]
    complaints = [f"{path}: does not mention {name}" for path, content in (
        ("docs/test-limits.md", document("docs/test-limits.md")),
        ("src/ctl/ratelimitctl.1, TEST FILES", document("src/ctl/ratelimitctl.1").partition(".SH TEST FILES")[2]))
        for name in names if not re.search(rf"\b{name}\b", content)]
    return complaints if methods and fields and words else ["src/ctl: no tables of test files found"]


def every_function_of_the_library_is_in_its_manual_page():
    names = re.findall(r"^RATELIMIT_API [^(]*?\*?(ratelimit_\w+)\(", document("src/client/ratelimit.h"), re.M)
    return missing_names(names, "src/client/libratelimit.3") if names else ["src/client/ratelimit.h: no functions found"]


def every_algorithm_has_c_code_a_lua_file_and_a_definition():
    names = re.findall(r"^ALGO\(\w+, (\w+)", document("src/limit/algo.def"), re.M)
    lua_file = {name: name.replace("leaky_bucket", "bucket") for name in names}  # it is that bucket, with a wait
    c_file = {name: "compat" if name.startswith("compat_") else lua_file[name] for name in names}
    complaints = [f"{path} is missing" for name in names
                  for path in (f"src/limit/{c_file[name]}.c", f"lua/{lua_file[name]}.lua") if not (ROOT / path).exists()]
    return complaints + missing_names([name.removeprefix("compat_") for name in names], "lua/ALGORITHMS.md")


def every_algorithm_is_in_the_documents():
    """By the name that a configuration has for it: in the lists of the manual page, of what it is for and of what it promises,
    of the bytes of its keys, and of what explain shows of its state."""
    names = sorted({name for path in tracked(ROOT, "*.c", below="src/limit") if path.name != "compat.c"
                    for name in re.findall(r'\.name = "(\w+)"', path.read_text())})
    state = re.search(r"^A `state` holds integers.*?^A `compat`", document("proto/PROTOCOL.md"), re.M | re.S)
    lists = [("src/man/ratelimitd.yaml.5", document("src/man/ratelimitd.yaml.5"), r"^\.It Cm (?:\w+ , )?{}\b"),
             ("proto/PROTOCOL.md, the state of explain", state.group() if state else "", r"^\|.*`{}`"),
             *((path, document(path), r"^\|.*`{}`") for path in ("README.md", "docs/configuration.md", "docs/redis.md"))]
    complaints = [f"{path}: no row for {name}" for path, text, row in lists for name in names
                  if not re.search(row.format(name), text, re.M)]
    return complaints if names else ["src/limit: no algorithms found"]


def every_file_and_name_of_the_architecture_is_in_the_code():
    """Of ARCHITECTURE.md: each module has its place in "What is where"; the structs, the functions of the drawings and the bounds of a
    tick are in the files that are named."""
    text, complaints = document("ARCHITECTURE.md"), []
    sources = {str(path.relative_to(ROOT)): path.read_text() for folder in ("src", "proto") for path in tracked(ROOT, "*.[chd]*", below=folder)
               if path.suffix in (".c", ".h", ".def")}
    block = re.search(r"^### What is where.*?^```\n(.*?)^```", text, re.M | re.S)
    named, folder = {}, ""
    for line in block.group(1).splitlines() if block else ():
        folder = line[:10].strip() or folder
        named.setdefault(folder.rstrip("/"), []).extend(re.sub(r"\(.*", "", line[30:]).split())
    have = {}
    for path in sources:
        parts = path.removeprefix("src/").split("/")
        if len(parts) == 2 and not path.endswith((".def", "_private.h")):
            have.setdefault(parts[0], set()).add(parts[1].rsplit(".", 1)[0])
    for folder in sorted({*have, *named}):
        listed, there = named.get(folder, []), have.get(folder, set())
        complaints += [f"What is where: {folder}/{name} is missing" for name in sorted(there - set(listed))]
        complaints += [f"What is where: there is no {folder}/{name}" for name in listed if name not in there]
        complaints += [f"What is where: {folder}/{name} stands twice" for name in sorted({name for name in listed if listed.count(name) > 1})]

    def of_file(name):
        return [code for path, code in sources.items() if f"/{path}".endswith(f"/{name}")]

    for names in re.findall(r"^struct ([\w, ]+?)  ", text, re.M):
        complaints += [f"there is no struct {name}" for name in names.split(", ")
                       if not any(f"struct {name} {{" in code for code in sources.values())]
    for name, function in re.findall(r"^(?!src/)([\w/]+\.[ch]) +(\w+)(?:  |\n|,)", text, re.M):
        if not any(re.search(rf"^\w[\w *]*\b{function}\(", code, re.M) for code in of_file(name)):
            complaints.append(f"{name} has no {function}()")
    for cell in re.findall(r"^\|[^|]*\|(.*)\|$", re.search(r"^## Where a tick.*?(?=^## )", text, re.M | re.S).group(), re.M):
        for constants, name in re.findall(r"((?:`\w+`(?:, )?)+) in ([\w/]+\.[ch])", cell):
            complaints += [f"{name} has no {constant}" for constant in re.findall(r"`(\w+)`", constants)
                           if not any(re.search(rf"\b{constant}\b", code) for code in of_file(name))]
    return [f"ARCHITECTURE.md: {complaint}" for complaint in complaints]


def anchors_of(path):
    """The headings of a page, in the form of link anchors."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def every_link_of_the_documents_has_a_target():
    complaints = []
    for path in tracked(ROOT, "*.md"):
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", path.read_text()):
            page = path.parent / target if target else path
            if not page.exists():
                complaints.append(f"{path.relative_to(ROOT)}: {target} does not exist")
            elif anchor and anchor not in anchors_of(page):
                complaints.append(f"{path.relative_to(ROOT)}: {target}#{anchor} is not a heading")
    return complaints


CHECKS = [check for name, check in list(globals().items()) if name.startswith("every_")]
