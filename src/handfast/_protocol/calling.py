"""Running a script of the user's.

Nobody knows what it does, so it is sent once only, unless its header says what happens when it is sent TWICE.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from handfast._engine.effects import Answer, Call, Steps
from handfast._engine.script import LuaScript, pack
from handfast._engine.script_errors import script_error
from handfast.errors import ServerRefused

__all__ = ["run"]


def run(script: LuaScript, keys: Sequence[Any], args: Sequence[Any]) -> Steps[Any]:
    """The script's reply, its texts as bytes. Raises ScriptError where it fails, and ServerRefused."""
    call = Call(script.head_for(len(keys), len(args)), pack((*keys, *args)), once=not script.header.repeatable)
    try:
        answer: Answer = yield call
    except ServerRefused as refused:
        refused.changed_nothing = False  # what it did before that, nobody knows
        fault = script_error(script, refused.words)
        if fault is None:
            raise
        raise fault from refused
    return answer.reply
