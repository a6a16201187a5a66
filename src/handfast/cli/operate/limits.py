"""``handfast pause``, ``resume``, ``resize`` and ``reset``: change a limiter, for all that use it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from handfast._kinds import MAX_PERMITS
from handfast._watch.acts import ANY_RATE, MAX_PAUSE_S, ROUNDED_S
from handfast.cli.connect import namespace_option, parse_name, server_options
from handfast.cli.durations import TIMES, parse_length, span
from handfast.cli.exits import DONE, NOTHING, exit_codes
from handfast.cli.operate.looking import connected, label_option, named, note, operator, reason_option, tell_unaudited
from handfast.cli.program import say

if TYPE_CHECKING:
    from handfast import Handfast, Limiter, MetricLimiter
    from handfast._engine.limits import Window

__all__ = ["pause", "reset", "resize", "resume"]

EPILOG = exit_codes({DONE: "it is done"})


def _options(command: Any) -> Any:
    """Add the options shared by the four commands."""
    for add in (namespace_option, server_options, label_option, _reason, _keys, _name):
        command = add(command)
    return command


_name = click.argument("name", callback=parse_name)
_keys = click.option(
    "--key", "keys", multiple=True, metavar="TEXT", help="The key of the limiter, if it has keys; repeatable."
)
_reason = reason_option(required=True, help="Why: for `handfast audit`.")


@click.command("pause", epilog=EPILOG + TIMES)
@_options
@click.option("--for", "duration", callback=parse_length, metavar="TIME", help="How long.  [required]")
def pause(**given: Any) -> None:
    """Admit no one to the limiter NAME for a while.

    Those who wait keep their places. A pause that lasts longer already stays as it is. NAME is as `handfast ls` shows it,
    such as 'login|bob' for a key.
    """
    seconds = given["duration"]
    with _client(given) as client:
        left = _limiter(client, given, ANY_RATE).pause(seconds, at_most=MAX_PAUSE_S, reason=given["reason"])
        if left > seconds + ROUNDED_S:
            name = named("limiter", given).shown
            click.echo(f"limiter {name!r} is paused for {span(left)} already: nothing was done")
        else:
            _done(client, given, "pause", f"is paused for {span(seconds)}", duration=seconds)


@click.command(
    "resume", epilog=exit_codes({DONE: "it is done", NOTHING: "NAME was not paused, or another pause goes on"})
)
@_options
@click.pass_context
def resume(ctx: click.Context, /, **given: Any) -> None:
    """End a pause of the limiter NAME, and admit those who wait and fit. Says which pause it was: by whom, since when and why."""
    from handfast.cli.operate import table

    with _client(given) as client:
        found = named("limiter", given)
        try:
            done = found.resume(client, reason=given["reason"])
        except ValueError as error:
            say(f"limiter {found.shown!r}: {table.printable(str(error))}")
            ctx.exit(NOTHING)
    if not done.taken:
        say(f"limiter {found.shown!r} is not paused")
        ctx.exit(NOTHING)
    tell_unaudited(done.unaudited)
    click.echo(f"limiter {found.shown!r} is paused no more; it was {table.printable(done.ended)}")


@click.command("resize", epilog=EPILOG)
@_options
@click.argument("rates", metavar="RATES")
def resize(**given: Any) -> None:
    """Set the rates of the limiter NAME for all, or the permits of the semaphore NAME.

    RATES is as for `handfast limit`, such as '10/s; 500/min', and counts whatever rates callers bring; 'none' lets them use
    their own again. Name every metric that callers count, as in 'requests: 500/min; tokens: 400000/min'. A number stands for
    the permits of a semaphore.
    """
    from handfast._engine.rates import read_text

    rates = given["rates"]
    with _client(given) as client:
        if re.fullmatch(r"[0-9]+", rates):
            if given["keys"]:
                raise click.UsageError("A semaphore has no keys.")
            client.semaphore(given["name"], 1).resize(int(rates))
            note(client, "resize", given["name"], kind="semaphore", reason=given["reason"], permits=int(rates))
            click.echo(f"semaphore {given['name']!r} has {int(rates):,} permit{'s' * (rates != '1')}")
            return
        everyones = rates == "none"
        limiter: Any = _limiter(client, given, ANY_RATE if everyones else rates)
        limiter.resize(None if everyones else read_text(rates), reason=given["reason"])
        said = "has the rates that its callers bring" if everyones else f"admits {rates}"
        _done(client, given, "resize", said, rates="" if everyones else rates)


@click.command("reset", epilog=EPILOG)
@_options
def reset(**given: Any) -> None:
    """Forget what the limiter NAME has admitted until now, and admit those who wait and fit.

    For a user who was locked out. A pause goes on, and rates that were set stay. Looks through all keys of the server for
    the periods of NAME.
    """
    from handfast._engine.rates import rates_text

    with _client(given) as client:
        windows = _windows(client, given)
        for window in windows:
            _limiter(client, given, rates_text([window.under(MAX_PERMITS)])).reset()
        _done(client, given, "reset", "counts from zero" if windows else "has admitted nothing lately")


def _client(given: dict[str, Any]) -> Any:
    return connected(given["url"], namespace=given["namespace"], label=given["label"] or operator())


def _limiter(client: Handfast, given: dict[str, Any], rates: str) -> Limiter | MetricLimiter:
    from handfast._engine.rates import read_text

    found = named("limiter", given)
    limiter = client.limiter(found.name, read_text(rates))
    return limiter.keyed(*found.parts) if found.parts else limiter


def _windows(client: Handfast, given: dict[str, Any]) -> list[Window]:
    """Return the windows in which a limiter has admitted something."""
    from handfast._engine.keys import KeySet
    from handfast._engine.slots import slot_of_key
    from handfast._protocol import limiting

    driver = client._driver  # noqa: SLF001 -- the library has no call for it: programs know their rates
    _, name, parts = named("limiter", given)
    place = KeySet(given["namespace"], "limiter", name, parts)
    slot = slot_of_key(place.tag.encode()) if driver.is_cluster else None
    return driver.look(limiting.windows(place, slot), place.name)


def _done(client: Handfast, given: dict[str, Any], what: str, said: str, **values: Any) -> None:
    name = named("limiter", given).shown
    note(client, what, name, kind="limiter", reason=given["reason"], **values)
    click.echo(f"limiter {name!r} {said}")
