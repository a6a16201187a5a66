"""Hold the engine's Lua scripts against what their headers say. Run in CI; exits 1 with one line per fault.

Checked for each ``lua/<noun>_<verb>.lua``, with its parts in place:

- the first code names KEYS and ARGV as the header does, in its order, and every one is used;
- an argument that is compared or calculated with was made a number first;
- every reply is a tagged array that the header lists with as many fields, and every listed one is returned;
- keys are only those that were passed: nothing is built inside the script;
- nothing is called that blocks, walks the whole keyspace, or answers differently each time;
- a part uses only names that are there before it, and gives what it says it gives;
- the header answers the three questions: sent TWICE, arriving LATE, out of MEMORY;
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

from holdfast.wire.script import LuaScript, load

LUA = Path(__file__).parent.parent / "src/holdfast/wire/lua"
QUESTIONS = ("TWICE", "LATE", "MEMORY")
FORBIDDEN = re.compile(
    r"'(?:KEYS|SCAN|RANDOMKEY|SRANDMEMBER|HRANDFIELD|ZRANDMEMBER|SPOP|BLPOP|BRPOP|BZPOPMIN|WAIT|EVAL|EVALSHA)'"
    r"|math\.random|os\.(?:time|clock|date)|loadstring|cjson|cmsgpack|#!lua"
)
KEYLESS = ("TIME", "PUBLISH")
CALL = re.compile(r"redis\.call\('(\w+)'(?:, ([^,()]+))?")


def main() -> int:
    """Check all scripts and tell what is wrong."""
    names = sorted(path.stem for path in LUA.glob("*.lua"))
    faults = [
        f"{name}.lua: {fault}" for name in names for fault in faults_of(load(name), (LUA / f"{name}.lua").read_text())
    ]
    faults += [
        f"parts/{path.name}: {fault}"
        for path in sorted((LUA / "parts").glob("*.lua"))
        for fault in part_faults(path.read_text())
    ]
    faults += luacheck([load(name) for name in names])
    print("\n".join(faults) or f"{len(names)} scripts keep their word")
    return 1 if faults else 0


def faults_of(script: LuaScript, text: str) -> Iterator[str]:
    """What is wrong with one script, ``text`` being its own file and ``script.source`` the whole."""
    header, body = script.header, code_of(script.source)
    comment = "\n".join(line for line in text.splitlines() if line.startswith("--"))
    for question in QUESTIONS:
        if not re.search(rf"^--.*\b{question}\b", comment, re.MULTILINE):
            yield f"the header does not say what happens: {question}"
    yield from naming_faults("KEYS", header.keys, body)
    yield from naming_faults("ARGV", header.args[:-1] if header.more_args else header.args, body)
    yield from number_faults(header.args, body)
    yield from reply_faults(header.replies, code_of(text))
    for command, key in CALL.findall(body):
        if command not in KEYLESS and key not in (*header.keys, "key"):
            yield f"{command} is called on {key or 'nothing'}, which is no key of the header"
    for found in FORBIDDEN.findall(body):
        yield f"{found} has no place in a script"
    yield from include_faults(text)


def naming_faults(table: str, names: tuple[str, ...], body: str) -> Iterator[str]:
    """Whether the locals that KEYS or ARGV are given to are called what the header calls them."""
    found: dict[int, str] = {}
    for left, right in re.findall(r"^local (.+?) = (.*\b(?:KEYS|ARGV)\[.*)$", body, re.MULTILINE):
        for name, value in zip(left.split(", "), right.split(", "), strict=True):
            if place := re.search(rf"\b{table}\[(\d+)\]", value):
                found[int(place[1])] = name
    if [found[place] for place in sorted(found)] != list(names) or sorted(found) != list(range(1, len(names) + 1)):
        yield f"{table} are {names} in the header but {tuple(found.values())} in the body"
    for name in names:
        if len(re.findall(rf"\b{name}\b", body)) < 2:
            yield f"{name} is never used"


def number_faults(names: tuple[str, ...], body: str) -> Iterator[str]:
    """Whether an argument is calculated or compared with as the text that it arrives as."""
    for place, name in enumerate(names, 1):
        calculates = re.search(rf"(?:[<>*/+]|[^-]-) ?\b{name}\b|\b{name}\b (?:[<>*/+-] |== [^'])", body)
        if calculates and f"tonumber(ARGV[{place}])" not in body:
            yield f"{name} is calculated with before tonumber"


def reply_faults(replies: dict[str, tuple[str, ...]], own_code: str) -> Iterator[str]:
    """Whether the body answers what the header promises, and only that."""
    found = {}
    for inner in re.findall(r"^\s*return \{(.*)\}$", own_code, re.MULTILINE):
        tag, *fields = split_top(inner)
        found[tag.strip("'")] = len(fields)
    for tag in found.keys() | replies.keys():
        if tag not in replies:
            yield f"it answers {tag!r}, of which the header does not know"
        elif tag not in found:
            yield f"it never answers {tag!r}, which the header promises"
        elif len(replies[tag]) != found[tag]:
            yield f"{tag!r} has {found[tag]} fields, not {len(replies[tag])} as in the header"
    if re.search(
        r"^\s*return (?!\{)", re.sub(r"(?s)^local function.*?^end", "", own_code, flags=re.MULTILINE), re.MULTILINE
    ):
        yield "it answers something that is no tagged array"


def include_faults(text: str) -> Iterator[str]:
    """Whether all that an included part uses is there before it."""
    known = set(
        re.findall(
            r"\w+", " ".join(re.findall(r"^local (.+?) =", text.split("-- @include", maxsplit=1)[0], re.MULTILINE))
        )
    )
    for part in re.findall(r"^-- @include (\w+)", text, re.MULTILINE):
        words = contract((LUA / "parts" / f"{part}.lua").read_text())
        if missing := set(words["USES"]) - known:
            yield f"part {part} uses {sorted(missing)}, which is not there before it"
        known |= set(words["GIVES"])


def part_faults(text: str) -> Iterator[str]:
    """What is wrong with one part on its own."""
    body, words = code_of(text), contract(text)
    defined = re.findall(r"^local (?:function )?(\w+)", body, re.MULTILINE)
    for name in words["GIVES"]:
        if name not in defined:
            yield f"it does not give {name}"
    for name in words["USES"]:
        if not re.search(rf"\b{name}\b", body):
            yield f"it does not use {name}"


def contract(text: str) -> dict[str, list[str]]:
    """The USES and GIVES lines of a part."""
    return {
        word: (re.search(rf"^-- {word}(.*)$", text, re.MULTILINE) or ["", ""])[1].split() for word in ("USES", "GIVES")
    }


def code_of(text: str) -> str:
    """The text without comments."""
    return re.sub(r"--.*$", "", text, flags=re.MULTILINE)


def split_top(text: str) -> list[str]:
    """Split at the commas that stand in no bracket."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "({[") - (character in ")}]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def luacheck(scripts: list[LuaScript]) -> list[str]:
    """What luacheck says of the scripts as the server sees them."""
    if shutil.which("luacheck") is None:
        print("luacheck is not installed: skipped", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory() as folder:
        for script in scripts:
            Path(folder, f"{script.name}.lua").write_text(script.source)
        options = ["--std", "lua51", "--read-globals", "redis", "KEYS", "ARGV", "--no-color", "--formatter", "plain"]
        # A part gives more than each script takes (211), and its parameters are called what the scripts call theirs (43).
        options += ["--max-line-length", "120", "--ignore", "211/(hand_over|hold|sweep|write_record)", "43"]
        done = subprocess.run(["luacheck", folder, *options], capture_output=True, text=True, check=False)  # noqa: S607 -- wherever the PATH has it
    return [line.replace(f"{folder}/", "") for line in done.stdout.splitlines() if line]


if __name__ == "__main__":
    sys.exit(main())
