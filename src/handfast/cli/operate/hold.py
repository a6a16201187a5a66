"""``handfast hold`` and ``handfast unhold``: let no one in under a name for a while."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

import click

from handfast.arguments import HeldKind
from handfast.cli.connect import namespace_option, parse_name, server_options
from handfast.cli.durations import TIMES, parse_duration_or_zero, parse_length
from handfast.cli.exits import DONE, NOTHING, exit_codes
from handfast.cli.operate.looking import (
    connected,
    json_option,
    label_option,
    note,
    operator,
    reason_option,
    tell_unaudited,
)
from handfast.cli.program import say

if TYPE_CHECKING:
    from handfast import Handfast, Hold

__all__ = ["hold", "unhold"]

KINDS = click.Choice(get_args(HeldKind))

_name = click.argument("name", callback=parse_name)
_kind = click.option("--kind", type=KINDS, default="lock", show_default=True, help="What NAME is the name of.")


@click.command("hold", epilog=exit_codes({DONE: "NAME is on hold", NOTHING: "a pattern matches no name"}) + TIMES)
@_name
@click.option("--for", "duration", callback=parse_length, metavar="TIME", help="How long.  [required]")
@reason_option(required=True, help="Why: for those who wait, and for `handfast show`.")
@_kind
@click.option("--now", is_flag=True, help="Ask the holders to end, and take their leases if they do not.")
@click.option(
    "--grace", callback=parse_duration_or_zero, metavar="TIME", help="With --now: how long they have.  [default: 10]"
)
@label_option
@json_option
@server_options
@namespace_option
@click.pass_context
def hold(ctx: click.Context, /, *, as_json: bool, **given: Any) -> None:
    """Let no one in under NAME for a while.

    Holders go on, and those who wait keep their places: they are served when the hold ends, by itself or by `handfast
    unhold`. Without --now nothing that runs is disturbed.

    NAME may be a pattern, such as 'report:*' in quotes: it stands for the names that the server knows now.
    """
    from handfast.cli.operate import objects, table

    if given["grace"] is not None and not given["now"]:
        raise click.UsageError("Use --grace with --now.", ctx)
    grace = 10.0 if given["grace"] is None else given["grace"]
    with _client(given) as client:
        names = _names(ctx, client, given)
        holds = {}
        values = {"duration": given["duration"], "now": given["now"]}
        for name in names:  # all of them first: then no one gets in anywhere
            holds[name] = client.hold(name, given["duration"], kind=given["kind"], reason=given["reason"])
            note(client, "hold", name, kind=given["kind"], reason=given["reason"], **values)
        if given["now"]:
            _end_holders(client, given["kind"], holds, grace, given["reason"])
        for name, done in holds.items():
            if as_json:
                identity = {"namespace": given["namespace"], "kind": given["kind"], "name": name}
                shown = {
                    "until": done.until.isoformat(),
                    "remaining": done.remaining,
                    "by": done.by,
                    "reason": done.reason,
                }
                click.echo(objects.dumped(identity | shown))
            else:
                click.echo(f"{given['kind']} {name!r} is {table.printable(str(done))}")
        if _is_pattern(given["name"]) and not as_json:
            click.echo(f"{len(holds):,} names; those that are made from now on are not on hold")


def _end_holders(client: Handfast, kind: Any, holds: Mapping[str, Hold], grace: float, reason: str) -> None:
    """Ask the holders of all names to end, and wait until they are gone."""
    from handfast._engine.validate import grace_milliseconds

    ends = {
        client._permits(kind, name): round(hold.until.timestamp() * 1e6)  # noqa: SLF001 -- as the method hold() does
        for name, hold in holds.items()
    }
    client._ask_to_end(ends, grace_milliseconds(grace), reason)  # noqa: SLF001 -- as above


@click.command(
    "unhold",
    epilog=exit_codes(
        {DONE: "the hold is over", NOTHING: "no hold was ended, another hold goes on, or a pattern matches no name"}
    ),
)
@_name
@reason_option(default="released", show_default=True, help="Why: for `handfast show`.")
@_kind
@label_option
@server_options
@namespace_option
@click.pass_context
def unhold(ctx: click.Context, /, **given: Any) -> None:
    """End the hold on NAME, and serve those who wait. Says which hold it was: who had set it, when and why.

    NAME may be a pattern, as of `handfast hold`.
    """
    from handfast._watch.acts import Named
    from handfast.cli.operate import table

    count = changed = 0
    with _client(given) as client:
        for name in _names(ctx, client, given):
            found = Named.of(given["kind"], name)
            try:
                done = found.unhold(client, reason=given["reason"])
            except ValueError as error:
                changed += 1
                say(f"{given['kind']} {name!r}: {table.printable(str(error))}")
                continue
            tell_unaudited(done.unaudited)
            if done.taken:
                count += 1
                click.echo(f"{given['kind']} {name!r} is on hold no more; it was {table.printable(done.ended)}")
    if not count and not changed:
        say(f"{given['name']!r} is not on hold")
    ctx.exit(0 if count and not changed else NOTHING)


def _client(given: dict[str, Any]) -> Any:
    return connected(given["url"], namespace=given["namespace"], label=given["label"] or operator())


def _names(ctx: click.Context, client: Handfast, given: dict[str, Any]) -> list[str]:
    """Return the name, or the names that a pattern matches."""
    if not _is_pattern(given["name"]):
        return [given["name"]]
    names = sorted(one.name for one in client.names(given["name"], kinds=[given["kind"]]))
    if not names:
        say(f"no {given['kind']} is known that matches {given['name']!r}")
        ctx.exit(NOTHING)
    return names


def _is_pattern(name: str) -> bool:
    return re.search(r"[*?[]", name) is not None
