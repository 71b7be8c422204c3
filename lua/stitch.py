#!/usr/bin/env python3
"""stitch.py SOURCE_DIR OUT.lua OUT.c: lua/batch.lua with the fragments of every algorithm, and the same embedded in C.

The algorithms are those of src/limit/algo.def that have a file in lua/; its head, and batch.lua's, say what a fragment reads
and sets. Each goes once into every place of its name, as a branch of one if-chain. `--@name OTHER` is another file's
fragment; `--@@name` within a fragment is one of its own file. Names in capitals become numbers: the kinds of ops (src/redis/batch_private.h) and the algorithms. The result keeps one statement
per line, so that an error's line number leads somewhere, but no comments.
"""

import hashlib
import pathlib
import re
import sys

# Each test of the chain before the one that holds costs time: first what is asked for most.
FIRST = ("bucket", "fixed_window", "sliding_counter", "sliding_log")


def fragments(source, name):
    """{prepare, view ...: lines} of one algorithm."""
    parts = re.split(r"^--@(\w+) ?(\w*)\n", (source / f"lua/{name}.lua").read_text(), flags=re.MULTILINE)[1:]
    found = {}
    for place, other, text in zip(parts[::3], parts[1::3], parts[2::3]):
        found[place] = fragments(source, other)[place] if other else text.rstrip("\n").split("\n")
    return {place: [line for text in lines for line in with_own(text, found)] for place, lines in found.items()}


def with_own(text, found):
    """The line, or the fragment of the same file that it names."""
    own = re.fullmatch(r"( *)--@@(\w+)", text)
    return [own[1] + line for line in found[own[2]]] if own else [text]


def algorithms(source):
    """[(number, name)] in the order of the chain; a name without a file is another algorithm's on the wire."""
    names = re.findall(r"^ALGO\(\w+, (\w+), \w+\)", (source / "src/limit/algo.def").read_text(), re.MULTILINE)
    there = [(number, name) for number, name in enumerate(names) if (source / f"lua/{name}.lua").exists()]

    def rank(algorithm):
        _, name = algorithm
        return FIRST.index(name) if name in FIRST else len(FIRST) + name.startswith("compat_")

    return sorted(there, key=rank)


def constants(source):
    """The numbers that stand for names in batch.lua."""
    kinds = re.search(r"enum batch_kind \{(.*?)\};", (source / "src/redis/batch_private.h").read_text(), re.DOTALL)[1]
    kinds = re.findall(r"^ *KIND_(\w+),", kinds, re.MULTILINE)
    return {name: i for i, name in enumerate(kinds)} | {name.upper(): number for number, name in algorithms(source)}


def chain(indent, place, modules):
    """The branches of all algorithms that have something for this place."""
    word = "elseif" if place == "view" else "if"  # view: unless the state is saved
    for number, module in modules:
        if place not in module:
            continue
        yield f"{indent}{word} algo == {number} then"
        yield from (f"{indent}    {text}" for text in module[place])
        word = "elseif"
    if place != "view":
        yield indent + "end"


def stitch(source):
    """The script's text."""
    modules = [(number, fragments(source, name)) for number, name in algorithms(source)]
    numbers = constants(source)
    lines = []
    for line in (source / "lua/batch.lua").read_text().rstrip("\n").split("\n"):
        place = re.fullmatch(r"( *)--@@(\w+)", line)
        if place:
            lines += chain(place[1], place[2], modules)
        elif not line.lstrip().startswith("--"):
            lines.append(re.sub(r"\b[A-Z][A-Z_]+\b", lambda word: str(numbers.get(word[0], word[0])), line))
    code = [re.sub(r"\s+-- .*$", "", line) for line in lines if not line.lstrip().startswith("--")]
    return "\n".join(line for line in code if line.strip()) + "\n"


def main():
    source, out_lua, out_c = (pathlib.Path(arg) for arg in sys.argv[1:4])
    text = stitch(source)
    out_lua.write_text(text)
    escaped = [line.replace("\\", "\\\\").replace('"', '\\"') for line in text.rstrip("\n").split("\n")]
    literal = "\n".join(f'    "{line}\\n"' for line in escaped)
    out_c.write_text(
        "/* Made by lua/stitch.py from lua/; see batch.h. */\n"
        '#include "redis/batch.h"\n\n'
        f"const char batch_script[] =\n{literal};\n"
        "const size_t batch_script_len = sizeof batch_script - 1;\n"
        f'const char batch_script_sha1[41] = "{hashlib.sha1(text.encode()).hexdigest()}";\n'
    )


if __name__ == "__main__":
    main()
