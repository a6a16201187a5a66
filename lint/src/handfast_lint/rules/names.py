"""Globals: all scripts of a server share one Lua state, so servers refuse writes of globals, and reads of unknown ones fail."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from handfast_lint.findings import Finding
from handfast_lint.parsing import Node
from handfast_lint.script import CheckedScript

__all__ = ["GLOBALS", "RULES", "check"]

RULES = {"global": "Every name is a local, or a global that servers provide."}

GLOBALS = {
    "": """
        ARGV KEYS _G _VERSION assert collectgarbage coroutine error gcinfo getmetatable ipairs load loadstring next pairs pcall
        rawequal rawget rawset select setmetatable tonumber tostring type unpack xpcall""",
    "bit": "arshift band bnot bor bswap bxor lshift rol ror rshift tobit tohex",
    "cjson": """
        _NAME _VERSION decode decode_invalid_numbers decode_max_depth encode encode_invalid_numbers encode_keep_buffer
        encode_max_depth encode_number_precision encode_sparse_array new null""",
    "cmsgpack": "_COPYRIGHT _DESCRIPTION _NAME _VERSION pack unpack unpack_limit unpack_one",
    "math": """
        abs acos asin atan atan2 ceil cos cosh deg exp floor fmod frexp huge ldexp log log10 max min mod modf pi pow rad random
        randomseed sin sinh sqrt tan tanh""",
    "redis": """
        LOG_DEBUG LOG_NOTICE LOG_VERBOSE LOG_WARNING REPL_ALL REPL_AOF REPL_NONE REPL_REPLICA REPL_SLAVE breakpoint call debug
        error_reply log pcall replicate_commands set_repl setresp sha1hex status_reply""",
    "string": "byte char dump find format gfind gmatch gsub len lower match rep reverse sub upper",
    "struct": "pack size unpack",
    "table": "concat foreach foreachi getn insert maxn remove setn sort",
}
"""The globals of every server, by the table that holds them. Those of only some servers are in
`handfast_lint.versions`."""

SOME = {
    "redis": {
        "acl_check_cmd",
        "REDIS_VERSION",
        "REDIS_VERSION_NUM",
        "SERVER_NAME",
        "VALKEY_VERSION",
        "VALKEY_VERSION_NUM",
    }
}
ELSEWHERE = {"server", "os", "print"}
"""Globals of some servers, which `handfast_lint.rules.servers` and `.chance` check."""

NEWER = {
    "table.unpack": "unpack(t)",
    "table.pack": "{...}",
    "table.move": "a loop",
    "math.type": "n % 1 == 0",
    "math.tointeger": "math.floor(n)",
    "utf8": "patterns over bytes",
    "bit32": "bit",
    "redis.register_function": "FUNCTION LOAD, because this belongs to a library of functions",
}
"""Functions of newer Lua versions, and what to write instead."""

ABSENT = {"debug", "dofile", "getfenv", "io", "loadfile", "module", "newproxy", "package", "require", "setfenv"}
"""Globals of Lua 5.1 that servers do not provide, or no longer do."""


def check(script: CheckedScript) -> Iterator[Finding]:
    """Check writes of globals, reads of globals, and members of libraries."""
    written = {name.word for name in script.scopes.globals_written}
    for name in script.scopes.globals_written:
        around = name.parent
        form = f"local function {name.word}" if around is not None and around.kind == "define" else f"local {name.word}"
        yield script.finding(
            "global", name, f"{name.word!r} is a global, and servers refuse writes of globals: write {form}"
        )
    libraries = set(GLOBALS) - {""}
    known = set(GLOBALS[""].split()) | libraries | written | ELSEWHERE
    for name in script.scopes.globals_read:
        if name.word not in known:
            yield script.finding("global", name, _unknown(script, name))
        elif (
            name.word in libraries
            and (use := name.parent) is not None
            and use.kind == "index"
            and use.one("base") is name
        ):
            yield from _of_library(script, name.word, use)


def _unknown(script: CheckedScript, name: Node) -> str:
    if name.word in NEWER:
        return f"there is no {name.word!r} in the Lua 5.1 of a server: use {NEWER[name.word]}"
    locals_ = {
        variable.word
        for node in script.nodes
        if node.kind in ("local", "local define")
        for variable in node.many("names")
    }
    if name.word in ABSENT:
        return f"servers do not provide {name.word!r} to scripts: do without it"
    if name.word in locals_:
        return f"{name.word!r} is a local of another block or of a later line: declare it before both"
    close = get_close_matches(name.word, sorted(locals_), 1)
    hint = f"did you mean {close[0]!r}?" if close else "declare it with local first, or check its spelling"
    return f"there is no variable {name.word!r} here: {hint}"


def _of_library(script: CheckedScript, library: str, use: Node) -> Iterator[Finding]:
    key = use.one("key")
    around = use.parent
    if around is not None and use in (*around.many("targets"), *around.many("target")):
        yield script.finding(
            "global", use, f"all scripts share {library!r}, and servers refuse to change it: use a local table"
        )
    elif key.kind == "string" and key.word not in GLOBALS[library].split() and key.word not in SOME.get(library, ()):
        full = f"{library}.{key.word}"
        close = get_close_matches(key.word, GLOBALS[library].split(), 1)
        hint = (
            f"use {NEWER[full]}"
            if full in NEWER
            else f"did you mean {library}.{close[0]}?"
            if close
            else "check its spelling"
        )
        yield script.finding("global", use, f"servers do not provide {full} to scripts: {hint}")
