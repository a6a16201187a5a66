"""Run a user's script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from handfast._engine.effects import Answer, Call, Steps
from handfast._engine.script import LuaScript, pack
from handfast._engine.server_errors import script_error
from handfast.errors import ServerRefused

__all__ = ["run_script"]


def run_script(script: LuaScript, keys: Sequence[Any], args: Sequence[Any]) -> Steps[Any]:
    """Run a user's script and return its reply, texts as bytes. Raises ScriptError if it fails, and ServerRefused.

    It is sent only once, unless the header has a TWICE line, which describes a second run.
    """
    call = Call(script.prefix_for(len(keys), len(args)), pack((*keys, *args)), once=not script.header.repeatable)
    try:
        answer: Answer = yield call
    except ServerRefused as refused:
        refused.changed_nothing = False  # the script may have written before it failed
        fault = script_error(script, refused.reply)
        if fault is None:
            raise
        raise fault from refused
    return answer.reply
