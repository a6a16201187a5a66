"""The parts shared by the three commands: the options, the client for looking, and the meaning of errors."""

from __future__ import annotations

import contextlib
import gc
import getpass
import os
import time
from collections.abc import Callable, Iterator, Mapping
from glob import escape
from typing import TYPE_CHECKING, Any, get_args

import click

from handfast._engine.validate import check_reason
from handfast._kinds import KINDS as ALL_KINDS
from handfast.arguments import Kind
from handfast.cli.connect import server_url, unreachable
from handfast.cli.exits import UNAVAILABLE
from handfast.cli.program import say

if TYPE_CHECKING:
    from handfast import Handfast
    from handfast._watch.acts import Named
    from handfast._watch.rows import Row

__all__ = [
    "HELD_KINDS",
    "KINDS",
    "LISTED",
    "connected",
    "held",
    "json_option",
    "label_option",
    "named",
    "note",
    "operator",
    "reason_option",
    "tell_unaudited",
    "uncollected",
]

LISTED = 100
"""Holders and waiters of a name that are asked for: the most that the library lists."""

KINDS = click.Choice(get_args(Kind))
HELD_KINDS = click.Choice([name for name, kind in ALL_KINDS.items() if kind.limit is not None])

json_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON: one object a line."
)


label_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--label", metavar="TEXT", help="Who does it, for `handfast audit` and `handfast show`.  [default: user@host]"
)


def reason_option(**options: Any) -> Callable[[Any], Any]:
    """Add the option ``--reason``. A reason that the audit would refuse is refused before anything is done."""

    def checked(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
        try:
            return value if value is None else check_reason(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return click.option("--reason", metavar="TEXT", callback=checked, **options)


def named(kind: Kind, given: Mapping[str, Any]) -> Named:
    """Return the NAME of a command, spelled as `handfast ls` shows it, with the parts of its ``--key`` behind it.

    Raises ValueError for a NAME that no name of this kind has.
    """
    from handfast._watch.acts import Named

    found = Named.of(kind, given["name"])
    return found._replace(parts=(*found.parts, *given.get("keys", ())))


def operator() -> str:
    """Return who runs this command, as the label of the client: at most 200 bytes."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        user = str(os.getuid())
    return f"{user}@{os.uname().nodename}".encode()[:200].decode(errors="ignore")


def note(client: Handfast, what: str, name: str, **fields: Any) -> None:
    """Write an act into the audit, and say so on standard error if that fails."""
    from handfast._watch.acts import note_failure

    tell_unaudited(note_failure(client, what, name, **fields))


def tell_unaudited(failure: str) -> None:
    """Say on standard error why an act that is done has no entry in the audit; nothing if it has one."""
    if failure:
        say(f"done, but {failure}")


@contextlib.contextmanager
def connected(url: str, **options: Any) -> Iterator[Handfast]:
    """Lend a client. The client's errors end the command with a matching exit code."""
    from redis.exceptions import RedisError

    from handfast import Handfast, HandfastError

    try:
        with Handfast(server_url(url), **options) as client:
            yield client
    except ValueError as error:
        raise click.UsageError(str(error), click.get_current_context()) from None
    except (HandfastError, RedisError, OSError) as error:
        say(unreachable(error, url))
        raise click.exceptions.Exit(UNAVAILABLE) from None


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Collect no garbage meanwhile: the parts of a list live until it is printed, and to walk them takes a fifth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def held(client: Handfast, name: str, kind: Kind | None) -> list[Row]:
    """Return a name in each kind with leases, or in a single kind."""
    from handfast._watch.rows import rows_of

    kinds: Any = (kind,) if kind else HELD_KINDS.choices
    return [*rows_of(client.names(escape(name), kinds=kinds, listed=LISTED), time.monotonic())]
