"""The least that a user of the server has to be allowed, read off the scripts that are run and off nothing else.

    rights = rights_for(["lock", "semaphore"], namespace="billing")
    admin.execute_command("ACL", "SETUSER", "app", "reset", "on", ">secret", *rights.rules())

A server holds each command within a script against the rights of whoever runs the script, and a script that may not go on
has written what it had written by then. So a user needs every command of the scripts, and `reading` finds them there:
a script that changes changes the rights with it. `uses` knows what each primitive runs and where it keeps it, `rights`
puts that together, and `asking` asks a server which of them a user does not have.
"""

from __future__ import annotations

from handfast.acl.check import missing_rights
from handfast.acl.commands import commands_of
from handfast.acl.primitives import NAMESPACED, USES
from handfast.acl.rights import Rights, rights_for, scripts_for

__all__ = ["NAMESPACED", "USES", "Rights", "commands_of", "missing_rights", "rights_for", "scripts_for"]
