"""The command ``handfast``.

Each subcommand is a module of its own, imported only when it is used, so that ``handfast run`` starts fast.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import NoReturn, cast

try:
    import click
except ImportError:
    click = None  # type: ignore[assignment]  # main() then names the extra to install

from handfast.cli.exits import UNAVAILABLE, USAGE

__all__ = ["main"]

if click is not None:
    from handfast.cli.program import show_usage_error

    click.UsageError.exit_code = USAGE  # where click has 2, which shells use for mistakes of their own
    click.UsageError.show = show_usage_error  # type: ignore[assignment, method-assign]

TASKS = {
    "Run a command": {
        "run": ("handfast.cli.run:command", "Run COMMAND while holding NAME."),
        "elect": ("handfast.cli.elect:command", "Run COMMAND while leading NAME, or see who leads."),
        "once": ("handfast.cli.once:command", "Run COMMAND unless it was done already."),
        "limit": ("handfast.cli.limit:command", "Wait for the turn of NAME under RATE, then become COMMAND."),
    },
    "Hold a name over several steps": {
        "acquire": (
            "handfast.cli.acquire:command",
            "Take NAME and write a token, with which a later step extends or releases it.",
        ),
        "extend": ("handfast.cli.operate.extend:command", "Let a lease last longer, by its token."),
        "release": (
            "handfast.cli.operate.release:command",
            "Release a lease by its token, or take NAME away from its holders.",
        ),
    },
    "Wait for each other": {
        "done": ("handfast.cli.latch:done", "Note parts of NAME as done, and print the number of parts left."),
        "wait": ("handfast.cli.latch:wait", "Wait until all parts of NAME are done."),
    },
    "See who holds what": {
        "ls": ("handfast.cli.operate.ls:command", "List the names that are held and waited for."),
        "show": (
            "handfast.cli.operate.show:command",
            "Show who holds NAME, who waits, and what an operator did last.",
        ),
        "top": ("handfast.cli.top.command:command", "Show who holds and waits, and what is wrong, each second."),
        "page": ("handfast.cli.page:command", "Serve a web page of who holds, who waits and what is wrong."),
        "audit": ("handfast.cli.operate.audit:command", "Print what operators did, in the order of time."),
    },
    "Measure": {
        "exporter": (
            "handfast.cli.operate.exporter:command",
            "Serve metrics of all names for Prometheus, until it is ended.",
        ),
    },
    "Stop what goes wrong, and set it right": {
        "hold": ("handfast.cli.operate.hold:hold", "Let no one in under NAME for a while."),
        "unhold": ("handfast.cli.operate.hold:unhold", "End the hold on NAME, and serve those who wait."),
        "forget": (
            "handfast.cli.operate.forget:command",
            "Forget that NAME was done, so that the next one does it again.",
        ),
        "pause": ("handfast.cli.operate.limits:pause", "Admit no one to the limiter NAME for a while."),
        "resume": (
            "handfast.cli.operate.limits:resume",
            "End a pause of the limiter NAME, and admit those who wait and fit.",
        ),
        "resize": (
            "handfast.cli.operate.limits:resize",
            "Set the rates of the limiter NAME for all, or the permits of the semaphore NAME.",
        ),
        "budget": (
            "handfast.cli.operate.budget:command",
            "Show the sums of the budget NAME, or set a limit.",
        ),
        "reset": (
            "handfast.cli.operate.limits:reset",
            "Forget what the limiter NAME has admitted until now, and admit those who wait and fit.",
        ),
    },
    "Try it out, and set up a server": {
        "demo": (
            "handfast.cli.demo.command:command",
            "Watch processes share locks, a rate, a result and items, in half a minute.",
        ),
        "doctor": (
            "handfast.cli.operate.doctor:command",
            "Check whether the server keeps what the locks promise.",
        ),
        "acl": ("handfast.cli.acl:command", "Print the ACL SETUSER command for a user with least privilege."),
    },
}
"""The commands by task, each with a line of help: help and completion import no command."""

COMMANDS = {name: command for commands in TASKS.values() for name, command in commands.items()}

INSTEAD = {
    "status": "show",
    "info": "show",
    "inspect": "show",
    "who": "show",
    "locks": "ls",
    "list": "ls",
    "names": "ls",
    "metrics": "exporter",
    "prometheus": "exporter",
    "web": "page",
    "ui": "page",
    "dashboard": "page",
    "unlock": "release",
    "break": "release",
    "force-release": "release",
    "renew": "extend",
    "lock": "run",
    "flock": "run",
    "exec": "run",
    "with": "run",
    "ratelimit": "limit",
    "leader": "elect",
    "election": "elect",
    "check": "doctor",
    "ping": "doctor",
    "rights": "acl",
}
"""Other names for commands."""

ELSEWHERE = {"script": "handfast-lint", "bench": "handfast-lab", "torture": "handfast-lab"}
"""Commands of our other distributions. Who misses one learns where it is."""

GROUP = "handfast.commands"
"""The entry-point group through which other distributions add commands, such as ``handfast-lint``."""

EXTRA = "the command needs click and rich; install them with: pip install 'handfast[cli]'"

EPILOG = """
\b
Environment:
  HANDFAST_URL  URL of the server: redis://localhost:6379/0, or embedded:
  REDIS_URL     used if HANDFAST_URL is not set
  NO_COLOR      no colors on a terminal

`handfast COMMAND --help` describes a command and its exit codes.
"""


def main(
    words: Sequence[str] | None = None, *, program: str | None = None, defaults: Mapping[str, str] | None = None
) -> None:
    """Run the command line; the entry point of the script ``handfast``.

    Another program may hand over its ``words`` behind its own name, and have other defaults for options such as ``url``.
    """
    if click is None:
        _refuse(EXTRA)
    try:
        _group().main(words, program, default_map=dict.fromkeys(COMMANDS, defaults or {}))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "rich":  # another package may have brought click alone
            raise
        _refuse(EXTRA)
    except OSError as error:  # such as one that keeps a module from being imported
        _refuse(str(error))


def _refuse(why: str) -> NoReturn:
    sys.stderr.write(f"handfast: {why}\n")
    sys.exit(UNAVAILABLE)


def _group() -> click.Group:
    from click.shell_completion import CompletionItem

    from handfast._version import __version__

    class Lazy(click.Group):
        def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's signature
            return [*COMMANDS, *sorted(_plugins())]

        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            if cmd_name in COMMANDS:
                module, _, attribute = COMMANDS[cmd_name][0].partition(":")
                command: click.Command = getattr(importlib.import_module(module), attribute)
                command.help = command.help or COMMANDS[cmd_name][1]  # without docstrings, with python -OO
                return command
            plugin = _plugins().get(cmd_name)
            if plugin is None and cmd_name in ELSEWHERE and not ctx.resilient_parsing:
                ctx.fail(f"{cmd_name!r} comes with another package; install it with: pip install {ELSEWHERE[cmd_name]}")
            return None if plugin is None else cast("click.Command", plugin.load())

        def resolve_command(
            self, ctx: click.Context, args: list[str]
        ) -> tuple[str | None, click.Command | None, list[str]]:
            name = args[0]
            if not (ctx.resilient_parsing or name.startswith("-") or self.get_command(ctx, name)):
                ctx.fail(f"There is no command {name!r}.{_suggestion(name)}")
            return super().resolve_command(ctx, args)

        def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 -- click's signature
            first = max(map(len, helps := _helps()))
            sections = {task: list(commands) for task, commands in TASKS.items()}
            for task, names in (sections | {"In other packages": sorted(_plugins())}).items():
                if names:
                    with formatter.section(task):
                        formatter.write_dl([(name.ljust(first), helps[name]) for name in names])

        def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
            found = [CompletionItem(name, help=text) for name, text in _helps().items() if name.startswith(incomplete)]
            return found + click.Command.shell_complete(self, ctx, incomplete)

    group = Lazy(
        "handfast",
        help="Distributed locks, semaphores, read-write locks and rate limiters through Redis or Valkey, from the shell.",
        epilog=EPILOG,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    return cast("click.Group", click.version_option(__version__, prog_name="handfast")(group))


def _suggestion(name: str) -> str:
    """Return a suggestion for an unknown command."""
    from difflib import get_close_matches

    close = [INSTEAD[name]] if name in INSTEAD else get_close_matches(name, [*COMMANDS, *ELSEWHERE, *_plugins()], 1)
    return "".join(f" Did you mean {found!r}?" for found in close)


def _helps() -> dict[str, str]:
    """Return a summary of each command, by name."""
    others = {name: plugin.dist.name if plugin.dist else "" for name, plugin in _plugins().items()}
    return {name: text for name, (_, text) in COMMANDS.items()} | dict(sorted(others.items()))


def _plugins() -> dict[str, EntryPoint]:
    """Return the commands of other installed distributions by name. They cannot replace commands of the product."""
    found = {plugin.name: plugin for plugin in entry_points(group=GROUP)}
    return {name: plugin for name, plugin in found.items() if name not in COMMANDS}
