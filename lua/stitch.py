#!/usr/bin/env python3
"""stitch.py SOURCE_DIR OUT.lua OUT.c: all modules of lua/ as one script, and the same embedded in C.

Each module of src/limit/algo.def whose file stands in lua/ is inlined into core.lua at the places
marked --@@; the head of core.lua says what a fragment reads and sets. steps.lua goes in as a whole, with every kind
of step in src/store/step.def. The result keeps one statement
per line, so that an error's line number leads somewhere, but no comments.
"""

import hashlib
import pathlib
import re
import sys

RUN = """
elseif algo == {number} then -- {name}
    <prepare>
    for i = first, last do
        local key, raw, k, cost = K[i], {raw}, 1, 1
        <key>
        if form == 1 then k, cost, pos = unp('<I4I7', S, pos) end
        local s1, s2, more, keep
        <view>
        <exists>
        local room = 0
        if s1 >= 0 then
            <room>
        end
        if form == 2 then
            <remember>
        elseif s1 >= 0 then
            local fit = k > 0 and k or 1
            if cost > 0 and room < fit * cost then fit = room > 0 and floor(room / cost) or 0 end
            local units = (fit < k and fit or k) * cost
            <count>
            <wait>
            if units > 0 or keep < 0 then
                <store>
            end
        end
        out[i] = s1
        <two>
    end
"""

PLAIN = """
elseif algo == {number} and form < 2 then -- {name}, one item per key
    <prepare>
    for i = first, last do
        local key, k, cost = K[i], 1, 1
        if form == 1 then k, cost, pos = unp('<I4I7', S, pos) end
        <plain>
        out[i] = s1
    end
"""

REMEMBER = """
firsts[i], seconds[i], mores[i], keeps[i], rooms[i], used[i] = s1, s2, more, keep, room, 0
"""

WAIT = """
if (fit < k or fit < 1) and cost > 0 then
    local counting, wait = s1 + units
    <counting>
    <wait>
    n_waits = n_waits + 1
    waits[n_waits] = wait
end
"""

WRITE = """
elseif algo == {number} then -- {name}
    <prepare>
    for i = first, last do
        local key, s1, units = K[i], firsts[i], used[i]
        if s1 >= 0 and (units > 0 or keeps[i] < 0) then
            <key>
            local raw, s2, more = {raw}, seconds[i], mores[i]
            <store>
            out[i] = s1
        end
    end
"""

RESET = """
elseif algo == {number} then -- {name}
    <prepare>
    for i = first, last do
        local key, raw, k = K[i], {raw}, 0
        <key>
        local s1, s2, more, keep
        <view>
        <exists>
        if s1 >= 0 then
            s1 = keep ~= 0 and 1 or 0
            call('DEL', key)
        end
        out[i] = s1
    end
"""

SEE = """
elseif algo == {number} then -- {name}
    <prepare>
    <key>
    <read>
    local s1, s2, more, keep
    <view>
    local room = 0
    if s1 >= 0 then
        <room>
    end
    return s1, s2 or 0, more, keep, room, raw, {counts}, {log}
"""

READ = """
local raw = try('GET', key)
if type(raw) == 'table' then
    if not find(raw.err, 'WRONGTYPE', 1, true) then return raw end
    return -1
end
"""

PUT = """
elseif algo == {number} then -- {name}
    <prepare>
    <key>
    <store>
"""

GIVE = """
elseif algo == {number} then -- {name}
    <prepare>
    <key>
    local back = 0
    <refund>
    if back > 0 or keep < 0 then
        <written>
    end
    return s1, s2, back
"""

# A string that is as good as none need not be there; what a log has of expired times stays.
WRITTEN = """
if s1 == 0 and s2 == 0 then
    call('DEL', key)
else
    local units = 0
    <store>
end
"""


def fill(template, parts):
    """Put each part where its <name> stands alone on a line, indented as that line; absent parts vanish."""
    lines = []
    for line in template.strip("\n").split("\n"):
        mark = re.fullmatch(r"( *)(?:<(\w+)>|--@@(\w+))", line)
        if not mark:
            lines.append(line)
            continue
        part = parts.get(mark[2] or mark[3], "")
        lines += [mark[1] + inner if inner else inner for inner in part.strip("\n").split("\n") if inner.strip()]
    return "\n".join(lines)


class Module:
    """One lua/NAME.lua: its fragments, and the code they make."""

    def __init__(self, number, name, path):
        self.number, self.name = number, name
        self.fragments = {}
        current = None
        for line in path.read_text().split("\n"):
            mark = re.fullmatch(r"--@(\w+) ?(.*)", line)
            if mark:
                current = self.fragments.setdefault(mark[1], [])
                if mark[2]:
                    current.append(mark[2])
            elif current is not None:
                current.append(line)
        self.fragments = {key: "\n".join(lines) for key, lines in self.fragments.items()}
        self.state = self.fragments.pop("state").split()

    def borrow(self, modules):
        """A fragment that is only the name of another module is that module's."""
        for key, text in self.fragments.items():
            if text.strip() in modules:
                self.fragments[key] = modules[text.strip()].fragments[key]
        if "plain" in self.fragments:
            self.fragments["plain"] = fill(self.fragments["plain"], self.fragments)

    def expand(self, template, **more):
        raw = "nil" if "own" in self.state else "raws[i]"
        text = template.replace("{number}", str(self.number)).replace("{name}", self.name).replace("{raw}", raw)
        return fill(text, {**self.fragments, **more})

    def exists(self, when=""):
        """MGET answers nil for a foreign type as for no key; where no write would find out, look."""
        return "" if "own" in self.state else f"if not raw and {when}call('EXISTS', key) == 1 then s1 = -1 end"

    def reset(self):
        return self.expand(RESET, exists=self.exists())

    def run(self):
        counts, logs = "counts" in self.state, "wait" in self.fragments
        remember = REMEMBER
        if counts:
            remember += "denials_count[i] = d == 1\n"
        if logs:
            remember += "logs[i] = {algo, a, b}\n"
        more = {"remember": remember}
        more["exists"] = self.exists("(form == 2 or k == 0) and ")
        if counts:
            more["count"] = "if d == 1 then units = k * cost end"
        if logs:
            counting = "if d == 1 and k == 0 then counting = counting + cost end" if counts else ""
            more["wait"] = fill(WAIT, {"wait": self.fragments["wait"], "counting": counting})
        if "s2" in self.state:
            more["two"] = "n_twos = n_twos + 1\ntwos[n_twos] = s1 >= 0 and s2 or 0"
        plain = self.expand(PLAIN) + "\n" if "plain" in self.fragments else ""
        return plain + self.expand(RUN, **more)

    def see(self):
        counts = "d == 1" if "counts" in self.state else "false"
        template = SEE.replace("{counts}", counts).replace("{log}", "true" if "wait" in self.fragments else "false")
        return self.expand(template, read="local raw" if "own" in self.state else READ)

    def give(self):
        own = "own" in self.state
        written = fill("local units = 0\n<store>" if own else WRITTEN, self.fragments)
        return self.expand(GIVE, written=written)

    def wait(self):
        return f"elseif algo == {self.number} then -- {self.name}\n" + fill("    <wait>", self.fragments)


def chain(pieces):
    """Pieces that begin with elseif, as one if-chain."""
    return re.sub(r"\Aelseif", "if", "\n".join(pieces)) + "\nend"


def steps(source, modules):
    """lua/steps.lua, with the kinds of src/store/step.def."""
    names = re.findall(r"^STEP\(\w+, (\w+), \w+\)", (source / "src/store/step.def").read_text(), re.MULTILINE)
    kinds = [
        f"elseif kind == {i} then -- {name}\n" + fill("    <act>", {"act": (source / f"lua/step_{name}.lua").read_text()})
        for i, name in enumerate(names)
    ]
    parts = {
        "see": chain([m.see() for m in modules]),
        "give": chain([m.give() for m in modules if "refund" in m.fragments]),
        "put": chain([m.expand(PUT) for m in modules]),
        "waits": chain([m.wait() for m in modules if "wait" in m.fragments]),
        "kinds": chain(kinds),
    }
    return fill((source / "lua/steps.lua").read_text(), parts)


def stitch(source):
    """The script's text."""
    table = (source / "src/limit/algo.def").read_text()
    names = re.findall(r"^ALGO\(\w+, (\w+), \w+\)", table, re.MULTILINE)
    modules = [Module(i, name, source / "lua" / f"{name}.lua") for i, name in enumerate(names)]
    for module in modules:
        module.borrow({module.name: module for module in modules})
    text = fill(
        (source / "lua/core.lua").read_text(),
        {
            "runs": "\n".join(m.run() for m in modules),
            "steps": steps(source, modules),
            "waits": chain([m.wait() for m in modules if "wait" in m.fragments]),
            "writes": chain([m.expand(WRITE) for m in modules]),
            "resets": chain([m.reset() for m in modules]),
        },
    )
    code = [re.sub(r"\s+-- .*$", "", line) for line in text.split("\n") if not line.lstrip().startswith("--")]
    return "\n".join(line for line in code if line.strip()) + "\n"


def main():
    source, out_lua, out_c = (pathlib.Path(arg) for arg in sys.argv[1:4])
    text = stitch(source)
    out_lua.write_text(text)
    escaped = [line.replace("\\", "\\\\").replace('"', '\\"') for line in text.rstrip("\n").split("\n")]
    literal = "\n".join(f'    "{line}\\n"' for line in escaped)
    out_c.write_text(
        "/* Made by lua/stitch.py from lua/; see turn.h. */\n"
        '#include "store/turn.h"\n\n'
        f"const char turn_script[] =\n{literal};\n"
        "const size_t turn_script_len = sizeof turn_script - 1;\n"
        f'const char turn_script_sha1[41] = "{hashlib.sha1(text.encode()).hexdigest()}";\n'
    )


if __name__ == "__main__":
    main()
