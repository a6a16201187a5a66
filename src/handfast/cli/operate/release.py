"""``handfast release``: release a lease with the token, or take leases away from the holders of a name."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from handfast._engine.defaults import DEFAULT_TTL_S
from handfast._watch.acts import Named
from handfast.arguments import Kind
from handfast.cli.connect import namespace_option, parse_name, server_options
from handfast.cli.exits import DONE, NOTHING, USAGE, exit_codes
from handfast.cli.operate.looking import (
    HELD_KINDS,
    connected,
    held,
    json_option,
    label_option,
    operator,
    reason_option,
    tell_unaudited,
)
from handfast.cli.operate.tokens import held_by, token_option
from handfast.cli.program import say

if TYPE_CHECKING:
    from handfast import Handfast
    from handfast._watch.facts import Facts
    from handfast._watch.rows import Row

__all__ = ["command"]

EPILOG = exit_codes(
    {
        DONE: "the lease was released, or leases were taken away",
        NOTHING: "none was: NAME is not held, or not with that fence, or the answer was no",
        USAGE: "wrong usage, such as no --yes without a terminal",
    }
)


@click.command("release", epilog=EPILOG)
@click.argument("name", callback=parse_name)
@reason_option(help="Take leases away. Why: for the holders' errors and logs, and for `handfast show`.")
@token_option()
@click.option("--kind", type=HELD_KINDS, help="What NAME is the name of, if it is held as several kinds.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--if-fence",
    type=click.IntRange(1),
    metavar="N",
    help="Take only leases with this fence or a smaller one, as `handfast show` has it.  [default: the latest fence shown]",
)
@click.option(
    "--fence",
    type=click.IntRange(1),
    metavar="N",
    help="Take only the lease with this fence, as `handfast show` has it: of one holder of several.",
)
@label_option
@json_option
@server_options
@namespace_option
@click.pass_context
def command(ctx: click.Context, /, *, as_json: bool, **given: Any) -> None:
    """Release a lease by its token, or take NAME away from its holders.

    With --token, of `lease.detach()` or the HANDFAST_TOKEN of `handfast run`, releases that lease. With --reason, shows
    who holds NAME and asks first. Leases that were granted after that are not touched. With --fence as well, takes the
    lease of one holder, and the others go on. In each case the next waiters get NAME.

    The former holders learn of it at once: their leases are lost. Until then they go on; a write of theirs is refused
    only where fences are checked.
    """
    from handfast.cli.operate import objects

    if (given["token"] is None) is (given["reason"] is None):
        raise click.UsageError("Use one of --token and --reason.", ctx)
    if given["fence"] is not None and given["if_fence"] is not None:
        raise click.UsageError("Use one of --fence and --if-fence.", ctx)
    if given["token"] is not None:
        if given["fence"] is not None or given["if_fence"] is not None or as_json:
            raise click.UsageError(
                "A token is of one lease: --token takes neither --fence, --if-fence nor --json.", ctx
            )
        _release_by_token(ctx, given)
        return
    with connected(given["url"], namespace=given["namespace"], label=given["label"] or operator()) as client:
        found, single = _held(ctx, client, given["name"], given["kind"]), given["fence"] is not None
        # The fence that is shown to the operator: a lease that is granted during the question is not taken.
        fence = given["fence"] or given["if_fence"] or found.facts.fence
        if not given["yes"] and (count := _reached(found.facts, fence, single=single)):
            _confirm(ctx, found, _one(found.facts, fence) if single else _leases(count))
        act = Named.of(found.kind, found.name)
        count, failure, _ = act.release(client, reason=given["reason"], fence=fence, single=single)
        # Leases are gone by now, so a failed entry of the audit is a warning and no end of the command.
        tell_unaudited(failure)
        after = held(client, found.name, found.kind)
    if as_json:
        done = {"released": count, "up_to_fence": None if single else fence, "reason": given["reason"]}
        one = {"fence": fence, "label": _label(found.facts, fence)} if single else {"fence": None, "label": None}
        identity = {"namespace": given["namespace"], "kind": found.kind, "name": found.name}
        click.echo(objects.dumped(identity | done | one))
    elif count:
        taken = f"{_one(found.facts, fence)} taken" if single else f"{_leases(count)} taken, up to fence {fence}"
        click.echo(f"released {found.kind} {found.name!r}: {taken}{_next(after)}")
    # Also with --json: this goes to standard error, and the exit code says the same.
    if not count:
        bound = "with" if single else "up to"
        say(f"nothing was taken: {found.name!r} has no lease {bound} fence {fence}")
    ctx.exit(0 if count else NOTHING)


def _release_by_token(ctx: click.Context, given: dict[str, Any]) -> None:
    with connected(given["url"], namespace=given["namespace"]) as client:
        lease = held_by(client, given["name"], given["token"], given["kind"], DEFAULT_TTL_S)
        if lease is None or not lease.release():
            say(f"the lease of {given['name']!r} has ended")
            ctx.exit(NOTHING)


def _held(ctx: click.Context, client: Handfast, name: str, kind: Kind | None) -> Row:
    """Return the row of a held name."""
    found = [one for one in held(client, name, kind) if one.facts.holding]
    if not found:
        say(f"{name!r} is not held")
        ctx.exit(NOTHING)
    if len(found) > 1:
        kinds = " and ".join(one.kind for one in found)
        raise click.UsageError(f"{name!r} is held as {kinds}: choose with --kind.", ctx)
    return found[0]


def _reached(facts: Facts, fence: int, *, single: bool) -> int:
    """Return how many leases have this fence or a smaller one: of more holders than are listed, how many there are.

    With ``single``, how many have this fence: 1 or 0, and 1 where it may be that of a holder that is not listed.
    """
    if single:
        return int(_label(facts, fence) is not None or facts.holding > len(facts.holders))
    if fence >= facts.fence or facts.holding > len(facts.holders):
        return facts.holding
    return sum(one.fence <= fence for one in facts.holders)


def _confirm(ctx: click.Context, found: Row, what: str) -> None:
    """Show who holds a name, and ask whether to take the leases."""
    from handfast.cli.operate import table, words

    if not sys.stdin.isatty():
        raise click.UsageError("Standard input is no terminal: confirm with --yes.", ctx)
    for line in words.described(found, table.width(), whole_queue=False):
        click.echo(line, err=True)
    if not click.confirm(f"\nTake {what} away?", err=True):
        ctx.exit(NOTHING)


def _leases(count: int) -> str:
    return "1 lease" if count == 1 else f"{count:,} leases"


def _label(facts: Facts, fence: int) -> str | None:
    """Return the label of the holder with this fence; None if it is not listed."""
    return next((one.label for one in facts.holders if one.fence == fence), None)


def _one(facts: Facts, fence: int) -> str:
    """Return a text for the lease with this fence."""
    label = _label(facts, fence)
    return f"the lease with fence {fence}" if label is None else f"the lease of {label!r} with fence {fence}"


def _next(after: list[Row]) -> str:
    """Say who has the name now."""
    holders = [one for found in after for one in found.facts.holders]
    return f"; now held by {', '.join(repr(one.label) for one in holders[:3])}" if holders else ""
