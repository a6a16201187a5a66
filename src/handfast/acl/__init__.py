"""The least rights that a user of the server needs, derived from the scripts that the user runs.

    rights = rights_for(["lock", "semaphore"], namespace="billing")
    admin.execute_command("ACL", "SETUSER", "app", "reset", "on", ">secret", *rights.rules())

A server checks each command within a script against the rights of the user that runs the script. A refused command ends
the script, and its earlier writes stay. So a user needs the right to every command of the scripts. `commands` reads
these commands from the source of the scripts, `primitives` lists the scripts and keys of each primitive, `rights`
combines them to rules of ACL SETUSER, and `check` asks a server which of the rights a user lacks.
"""

from __future__ import annotations

from handfast._engine.script import LuaScript
from handfast._naming import name_publicly
from handfast.acl.check import missing_rights
from handfast.acl.commands import commands_of
from handfast.acl.primitives import NAMESPACED, USES, Use
from handfast.acl.rights import Rights, rights_for, scripts_for

__all__ = [
    "NAMESPACED",
    "USES",
    "LuaScript",
    "Rights",
    "Use",
    "commands_of",
    "missing_rights",
    "rights_for",
    "scripts_for",
]

name_publicly(globals())
