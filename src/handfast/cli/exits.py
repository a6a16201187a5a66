"""The exit codes of the command, and how the help says them.

Codes are those of ``sysexits.h`` and of ``sh(1)``.
"""

from __future__ import annotations

__all__ = [
    "BUSY",
    "DONE",
    "IO_ERROR",
    "NOTHING",
    "NOT_EXECUTABLE",
    "NOT_FOUND",
    "NOT_REPEATED",
    "SIGNALED",
    "UNAVAILABLE",
    "USAGE",
    "exit_codes",
]

DONE = 0
"""Done, or shown."""

NOTHING = 1
"""There is nothing to show or to do; or a check found a fault."""

USAGE = 64
"""Wrong usage, in every command (EX_USAGE)."""

UNAVAILABLE = 69
"""The server cannot be reached or refuses, in every command; or the extra is not installed (EX_UNAVAILABLE)."""

NOT_REPEATED = 70
"""An earlier run did not complete and is not to be repeated (EX_SOFTWARE)."""

IO_ERROR = 74
"""A lease was lost while the command ran, or the token could not be written (EX_IOERR)."""

BUSY = 75
"""The turn did not come in the time allowed (EX_TEMPFAIL)."""

NOT_EXECUTABLE = 126
"""The program cannot be executed, as in sh(1)."""

NOT_FOUND = 127
"""There is no such program, as in sh(1)."""

SIGNALED = 128
"""Plus the number of the signal that ended the command, as in sh(1)."""

EVERYWHERE: dict[int, str] = {
    USAGE: "wrong usage",
    UNAVAILABLE: "the server cannot be reached, or it refused the request",
}

OF_PROGRAMS: dict[int, str] = {NOT_EXECUTABLE: "COMMAND cannot be executed", NOT_FOUND: "COMMAND was not found"}


def exit_codes(own: dict[int, str], *, program: str = "") -> str:
    """Return the table of exit codes for the help of a command, as an epilog of click.

    ``own`` says the codes of this command, and replaces the usual texts. A command that runs a program says with
    ``program`` which codes are those of the program, and when the others apply.
    """
    texts = EVERYWHERE | (OF_PROGRAMS if program else {}) | own
    labels = {code: "128+n" if code == SIGNALED else str(code) for code in sorted(texts)}
    width = 2 + max(map(len, labels.values()))
    rows = [
        f"{label:>{width}}  {texts[code]}".replace("\n", "\n" + " " * (width + 2)) for code, label in labels.items()
    ]
    return "\n".join(["\n\b", f"Exit codes:{program and f' {program}'}", *rows, ""])
