"""``handfast budget``: show the sums of a budget, and set the limit for all programs."""

from __future__ import annotations

import time
from glob import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from handfast._engine.calendar import PERIODS
from handfast._engine.money import millionths
from handfast.cli.connect import namespace_option, parse_name, server_options
from handfast.cli.exits import DONE, NOTHING, exit_codes
from handfast.cli.operate.looking import connected, json_option, label_option, named, note, operator, reason_option
from handfast.cli.program import say

if TYPE_CHECKING:
    from handfast import Budget, Handfast

__all__ = ["command"]

SHOWN = exit_codes({DONE: "the budget is shown", NOTHING: "the server does not know NAME"})

SET = (
    exit_codes({DONE: "the limit is set", NOTHING: "the server does not know NAME: give --period"})
    + """
AMOUNT is a number with at most six decimals, such as 250 or 37.50.
"""
)

_name = click.argument("name", callback=parse_name)


@click.group("budget", short_help="Show the sums of the budget NAME, or set a limit.")
def command() -> None:
    """Show the sums of the budget NAME, or set a limit."""


@command.command("show", short_help="Show the sums of NAME and of each key.", epilog=SHOWN)
@_name
@json_option
@server_options
@namespace_option
@click.pass_context
def show(ctx: click.Context, /, *, name: str, as_json: bool, url: str, namespace: str) -> None:
    """Show the spent and the held sum of the budget NAME and of each key, the fullest first.

    NAME is as `handfast ls` shows it, such as llm or 'llm|acme'; then its further keys are shown, too.
    """
    from handfast._watch.rows import rows_of
    from handfast.cli.operate import objects, table, words

    with connected(url, namespace=namespace) as client:
        found = [one for each in (name, f"{name}|") for one in client.names(_pattern(each), kinds=("budget",))]
    rows = sorted(rows_of(found, time.monotonic()), key=lambda row: (-row.facts.used, row.name))
    if not rows:
        say(f"the server does not know the budget {name!r}")
        ctx.exit(NOTHING)
    if as_json:
        lines = [objects.dumped(objects.description(namespace, row)) for row in rows]
    else:
        lines = list(words.summary([words.entry(row) for row in rows], table.width(), last_used=False))
    click.echo("\n".join(lines))


@command.command("set", short_help="Set the limit of NAME for all that use it.", epilog=SET)
@_name
@click.argument("limit", metavar="AMOUNT", required=False)
@click.option(
    "--key", "keys", multiple=True, metavar="TEXT", help="The key, if NAME has keys; repeatable, in their order."
)
@click.option("--at-least-spent", "spent", metavar="AMOUNT", help="Raise the spent sum of this period to AMOUNT.")
@click.option("--period", type=click.Choice(PERIODS), help="The period, where nothing is spent of NAME yet.")
@click.option("--zone", metavar="ZONE", help="The time zone, with --period.  [default: UTC]")
@click.option("--begins", type=int, metavar="N", help="Where a period begins, with --period.  [default: 1]")
@reason_option(required=True, help="Why: for `handfast audit`.")
@label_option
@server_options
@namespace_option
@click.pass_context
def set_(ctx: click.Context, /, **given: Any) -> None:
    """Set the limit of the budget NAME to AMOUNT for all that use it; 'none' has each program bring its own again.

    AMOUNT may be below the spent sum: then nothing fits until the next period. NAME is as `handfast ls` shows it, such as
    'llm|acme' for a key.
    """
    limit, spent, reason = given["limit"], given["spent"], given["reason"]
    if limit is None and spent is None:
        raise click.UsageError("Give AMOUNT, --at-least-spent or both.", ctx)
    if given["period"] is None and (given["zone"] or given["begins"]):
        raise click.UsageError("--zone and --begins come with --period.", ctx)
    try:  # both, before either is set
        for amount, what in ((limit, "AMOUNT"), (spent, "--at-least-spent")):
            if amount is not None and (amount, what) != ("none", "AMOUNT"):
                millionths(amount, what)
    except ValueError as error:
        raise click.UsageError(str(error), ctx) from None
    with connected(given["url"], namespace=given["namespace"], label=given["label"] or operator()) as client:
        shown = named("budget", given).shown
        budget = _budget(client, given)
        if budget is None:
            say(
                f"the server does not know the budget {shown!r}; give --period, and --zone and --begins where programs do"
            )
            ctx.exit(NOTHING)
        # Each change has its entry at once: the next one may fail.
        if limit is not None:
            budget.set_limit(None if limit == "none" else limit, reason=reason)
            note(client, "resize", shown, kind="budget", reason=reason, rates="" if limit == "none" else limit)
        if spent is not None:
            budget.at_least_spent(spent, reason=reason)
            note(client, "raise", shown, kind="budget", reason=reason, rates=f"{spent} spent")
        if limit == "none":
            click.echo(f"budget {shown!r} has the limit that each program brings")
        else:
            click.echo(f"budget {shown!r}: {budget.status()}")


class _Terms(NamedTuple):
    limit: Any
    period: str
    zone: str
    begins: int


def _budget(client: Handfast, given: dict[str, Any]) -> Budget | None:
    """Return the budget as it was made, or as the options say; None if neither is known."""
    name = named("budget", given)
    found = next(iter(client.names(_pattern(name.shown), kinds=("budget",))), None)
    if found is not None:
        status: Any = found.status
        terms = _Terms(status.limit, status.period, status.zone, status.begins)
    elif given["period"] is not None:
        terms = _Terms(0, given["period"], given["zone"] or "UTC", given["begins"] or 1)
    else:
        return None
    budget = client.budget(name.name, (terms.limit, terms.period), zone=terms.zone, begins=terms.begins)
    return budget.keyed(*name.parts) if name.parts else budget


def _pattern(name: str) -> str:
    """Return the pattern of a name, and with a bar at the end, of the keys behind it."""
    return f"{escape(name)}{'*' if name.endswith('|') else ''}"
