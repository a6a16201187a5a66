"""Check the engine's Lua scripts. Run in CI; exits 1 with one line per fault.

Checked for each ``lua/<noun>_<verb>.lua``, with its parts in place:

- ``handfast script check --strict`` finds nothing;
- every reply is one that the header lists: a tag and doubles in a string, or a tagged array; only ``struct`` packs;
- a part uses only names that are defined before it, and defines the names that it says it gives;
- what the header says is packed is unpacked so, and the reply without a server is one of its replies;
- the header answers three questions: sent TWICE, arriving LATE, out of MEMORY;
- luacheck finds nothing, where it is installed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from handfast._engine.contract import contract_of
from handfast._engine.script import LuaScript, include_parts, load
from handfast_lint import check

LUA = Path(__file__).parent.parent / "src/handfast/_engine/lua"
QUESTIONS = ("TWICE", "LATE", "MEMORY")
PACKING = re.compile(r"\b(?:cjson|cmsgpack|loadstring)\b")
PACKED = re.compile(r"\breturn '(\w+) ((?:\\0)*)'(?: \.\. struct\.pack\('<(d+)')?")
"""A reply in a string: its tag, and its numbers as constant zeros or as a format."""
ARRAY = re.compile(r"\breturn \{'(\w+)'")
"""The tag of a reply that is an array, for one with a value of the user's."""


def main() -> int:
    """Check all scripts and print what is wrong."""
    names = sorted(path.stem for path in LUA.glob("*.lua"))
    faults = [
        f"{name}.lua: {fault}" for name in names for fault in faults_of(load(name), (LUA / f"{name}.lua").read_text())
    ]
    faults += [
        f"lib/{path.name}: {fault}"
        for path in sorted((LUA / "lib").glob("*.lua"))
        for fault in part_faults(include_parts(path.read_text()))
    ]
    faults += luacheck([load(name) for name in names])
    print("\n".join(faults) or f"{len(names)} scripts are as their headers say")
    return 1 if faults else 0


def faults_of(script: LuaScript, text: str) -> Iterator[str]:
    """Find what is wrong with one script: ``text`` is its own file, ``script.source`` has the parts in place."""
    comment = "\n".join(line for line in text.splitlines() if line.startswith("--"))
    for question in QUESTIONS:
        if not re.search(rf"^--.*\b{question}\b", comment, re.MULTILINE):
            yield f"the header does not say what happens: {question}"
    if not script.header.replies and not script.header.untagged:
        yield "the header lists no reply"
    for found in PACKING.findall(code_of(script.source)):
        yield f"the engine does not use {found}: struct packs its replies and records"
    packed = PACKED.findall(code_of(script.source))
    lines = script.source.split("\n")
    for finding in check(script.source, name=script.name):
        if not packed or finding.rule != "reply":
            yield f"[{finding.rule}] {finding.message}, in: {lines[finding.line - 1].strip()}"
    if packed:
        yield from packed_faults(script, packed)
    for name, packed_argument in contract_of(script.name).packs.items():
        if name not in script.header.args:
            yield f"PACK names {name}, which is no argument"
        if len(packed_argument.names) != len(packed_argument.codes):
            yield f"PACK gives {name} {len(packed_argument.names)} names for {len(packed_argument.codes)} values"
        if f"struct.unpack('{packed_argument.format}'" not in script.source:
            yield f"PACK gives {name} the format {packed_argument.format}, with which nothing is unpacked"
    alone = contract_of(script.name).alone
    if alone and len(script.header.replies.get(alone[0], ())) != len(alone) - 1:
        yield f"ALONE is no reply of the header: {' '.join(alone)}"
    yield from include_faults(text)


def packed_faults(script: LuaScript, packed: list[tuple[str, str, str]]) -> Iterator[str]:
    """Find replies in strings that are not as the header says, and lines of the header that are never returned."""
    for tag, zeros, doubles in packed:
        fields = script.header.replies.get(tag)
        if fields is None:
            yield f"the header lists no reply {tag!r}"
        elif len(fields) != len(doubles) + len(zeros) // 16:
            yield f"{tag!r} has {len(doubles) + len(zeros) // 16} numbers here, and the header names {len(fields)}"
    for tag in script.header.replies.keys() - {tag for tag, *_ in packed} - {*ARRAY.findall(code_of(script.source))}:
        yield f"the script never returns {tag!r}"


def include_faults(text: str) -> Iterator[str]:
    """Find names that an included part uses and that are not defined before it."""
    given: set[str] = set()
    for include in re.finditer(r"^ *-- @include (\w+)", text, re.MULTILINE):
        before = re.findall(r"^ *local (.+?) =", text[: include.start()], re.MULTILINE)
        words = contract((LUA / "lib" / f"{include[1]}.lua").read_text())
        if missing := set(words["USES"]) - set(re.findall(r"\w+", " ".join(before))) - given:
            yield f"part {include[1]} uses {sorted(missing)}, which nothing before it defines"
        given |= set(words["GIVES"])


def part_faults(text: str) -> Iterator[str]:
    """Find what is wrong with one part on its own."""
    body, words = code_of(text), contract(text)
    defined = re.findall(r"\w+", " ".join(re.findall(r"^local (?:function )?([\w, ]+)", body, re.MULTILINE)))
    for name in words["GIVES"]:
        if name not in defined:
            yield f"it does not give {name}"
    for name in words["USES"]:
        if not re.search(rf"\b{name}\b", body):
            yield f"it does not use {name}"


def contract(text: str) -> dict[str, list[str]]:
    """Read the USES and GIVES lines of a part."""
    return {
        word: (re.search(rf"^-- {word}(.*(?:\n--   .*)*)$", text, re.MULTILINE) or ["", ""])[1]
        .replace("--", "")
        .split()
        for word in ("USES", "GIVES")
    }


def code_of(text: str) -> str:
    """Remove the comments."""
    return re.sub(r"--.*$", "", text, flags=re.MULTILINE)


def luacheck(scripts: list[LuaScript]) -> list[str]:
    """Run luacheck on the scripts as they are sent."""
    if shutil.which("luacheck") is None:
        print("luacheck is not installed: skipped", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory() as folder:
        for script in scripts:
            Path(folder, f"{script.name}.lua").write_text(script.source)
        options = [
            "--std",
            "lua51",
            "--read-globals",
            "redis",
            "struct",
            "KEYS",
            "ARGV",
            "--no-color",
            "--formatter",
            "plain",
        ]
        # A part gives more than each script takes (211, 231); parameters and the scripts' short ways have names of
        # parts (4).
        given = sorted({name for part in (LUA / "lib").glob("*.lua") for name in contract(part.read_text())["GIVES"]})
        options += ["--max-line-length", "120", "--ignore", "4", *(f"2[13]1/{name}" for name in given)]
        done = subprocess.run(["luacheck", folder, *options], capture_output=True, text=True, check=False)  # noqa: S607 -- wherever the PATH has it
    return [line.replace(f"{folder}/", "") for line in done.stdout.splitlines() if line]


if __name__ == "__main__":
    sys.exit(main())
