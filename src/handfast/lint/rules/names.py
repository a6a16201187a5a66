"""Globals. All scripts of a server share one Lua, so servers let none of them write a global, and reading one fails."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from handfast.lint.findings import Finding
from handfast.lint.parsing import Node
from handfast.lint.script import Body

__all__ = ["GLOBALS", "RULES", "check"]

RULES = {"global": "Every name is a local, or one that servers give to scripts."}

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
"""What every server gives to scripts, by the table that it stands in. `handfast.lint.versions` has what only some give."""

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
"""Globals of some servers, which `handfast.lint.rules.servers` and `.chance` speak of."""

NEWER = {
    "table.unpack": "unpack(t)",
    "table.pack": "{...}",
    "table.move": "a loop",
    "math.type": "n % 1 == 0",
    "math.tointeger": "math.floor(n)",
    "utf8": "patterns over bytes",
    "bit32": "bit",
    "redis.register_function": "FUNCTION LOAD, for this belongs to a library of functions",
}
"""What people look for, and what to write."""

ABSENT = {"debug", "dofile", "getfenv", "io", "loadfile", "module", "newproxy", "package", "require", "setfenv"}
"""Globals of Lua 5.1 that servers do not give, or no more."""


def check(body: Body) -> Iterator[Finding]:
    """Writes, then reads, then what is asked of the libraries."""
    written = {name.word for name in body.scopes.globals_written}
    for name in body.scopes.globals_written:
        around = name.parent
        form = f"local function {name.word}" if around is not None and around.kind == "define" else f"local {name.word}"
        yield body.finding(
            "global", name, f"{name.word!r} is a global, and servers let no script write one: write {form}"
        )
    libraries = set(GLOBALS) - {""}
    known = set(GLOBALS[""].split()) | libraries | written | ELSEWHERE
    for name in body.scopes.globals_read:
        if name.word not in known:
            yield body.finding("global", name, _unknown(body, name))
        elif (
            name.word in libraries
            and (use := name.parent) is not None
            and use.kind == "index"
            and use.one("base") is name
        ):
            yield from _of_library(body, name.word, use)


def _unknown(body: Body, name: Node) -> str:
    if name.word in NEWER:
        return f"there is no {name.word!r} in the Lua 5.1 of a server: use {NEWER[name.word]}"
    locals_ = {
        variable.word
        for node in body.nodes
        if node.kind in ("local", "local define")
        for variable in node.many("names")
    }
    if name.word in ABSENT:
        return f"servers keep {name.word!r} from scripts: do without"
    if name.word in locals_:
        return (
            f"{name.word!r} is a local of another block, or of lines below, and not seen here: declare it before both"
        )
    close = get_close_matches(name.word, sorted(locals_), 1)
    hint = f"did you mean {close[0]!r}?" if close else "declare it with local before, or look at its spelling"
    return f"nothing is called {name.word!r} here: {hint}"


def _of_library(body: Body, library: str, use: Node) -> Iterator[Finding]:
    key = use.one("key")
    around = use.parent
    if around is not None and use in (*around.many("targets"), *around.many("target")):
        yield body.finding(
            "global", use, f"all scripts share {library!r}, and servers let none change it: use a local table"
        )
    elif key.kind == "string" and key.word not in GLOBALS[library].split() and key.word not in SOME.get(library, ()):
        full = f"{library}.{key.word}"
        close = get_close_matches(key.word, GLOBALS[library].split(), 1)
        hint = (
            f"use {NEWER[full]}"
            if full in NEWER
            else f"did you mean {library}.{close[0]}?"
            if close
            else "look at its spelling"
        )
        yield body.finding("global", use, f"servers give no {full} to scripts: {hint}")
