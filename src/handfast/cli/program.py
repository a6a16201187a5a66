"""Commands that wait for something and then run a program: how they are written.

The program and its arguments come after ``--``.
"""

from __future__ import annotations

import contextlib
import shutil
import sys

import click

from handfast.cli.exits import NOT_EXECUTABLE, NOT_FOUND

__all__ = ["ProgramCommand", "refuse_to_run", "say", "show_usage_error"]


class ProgramCommand(click.Command):
    """A click command whose own options end at ``--``; everything after it is COMMAND and is not parsed.

    It gets COMMAND as the tuple ``command``, which is empty only if ``is_optional``.
    """

    is_optional = False

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [
            *super().collect_usage_pieces(ctx),
            *(["[-- COMMAND...]"] if self.is_optional else ["--", "COMMAND..."]),
        ]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        has_end = "--" in args
        # Cut here and not by click, which would take options of COMMAND for its own.
        end = args.index("--") if has_end else len(args)
        program = tuple(args[end + 1 :])
        names = [parameter.human_readable_name for parameter in self.params if isinstance(parameter, click.Argument)]
        try:
            super().parse_args(ctx, args[:end])
            is_whole = program or (self.is_optional and not has_end)
            # A shell that completes a line parses what there is of it so far.
            if (ctx.args or not is_whole) and not ctx.resilient_parsing:
                ctx.fail(f"Give one {', one '.join(names)} and one COMMAND, separated by --.")
        except click.UsageError as error:
            # The form helps where -- is missing. Any other error of usage says all by itself.
            is_hint = not has_end and (ctx.args or not self.is_optional)
            form = f" The command comes after --, as in: {ctx.command_path} {' '.join(names)} -- COMMAND"
            raise click.UsageError(error.format_message() + (form if is_hint else ""), ctx) from None
        ctx.params["command"] = program
        ctx.args = []
        return []


def say(message: str) -> None:
    """Write a message to standard error, wrapped between words for a terminal; a closed standard error is ignored."""
    text = f"handfast: {message}"
    with contextlib.suppress(OSError, ValueError):  # ValueError: it was closed by the program
        if sys.stderr is not None and sys.stderr.isatty():
            from handfast.cli.colors import RED, colored, wrapped

            head, *more = wrapped(text, shutil.get_terminal_size().columns, indent=2)
            prefix, _, rest = head.partition(" ")
            text = "\n".join([f"{colored(prefix, RED, sys.stderr)} {rest}", *more])
        click.echo(text, err=True)


def show_usage_error(error: click.UsageError, _file: object = None) -> None:
    """Write an error of wrong usage as all other messages are written, with the usage before it."""
    if (ctx := error.ctx) is not None:
        hint = f"Try '{ctx.command_path} {ctx.help_option_names[-1]}' for help.\n" if ctx.help_option_names else ""
        click.echo(f"{ctx.get_usage()}\n{hint}", err=True)
    say(error.format_message())


def refuse_to_run(program: str, error: OSError) -> int:
    """Say why a program cannot be run, and return the exit code that says so."""
    say(f"cannot run {program!r}: {error.strerror}")
    return NOT_FOUND if isinstance(error, FileNotFoundError | NotADirectoryError) else NOT_EXECUTABLE
