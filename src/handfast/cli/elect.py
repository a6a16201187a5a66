"""``handfast elect``: run a command while leading, or see who leads."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from handfast._drivers.clock import monotonic
from handfast._engine.defaults import DEFAULT_TERM_S
from handfast.cli.connect import namespace_option, parse_name, server_options
from handfast.cli.durations import TIMES, parse_duration, parse_duration_or_zero
from handfast.cli.exits import BUSY, IO_ERROR, NOTHING, SIGNALED, USAGE, exit_codes
from handfast.cli.holding import fences_around, label_option, loss_options, max_hold_option, run_holding
from handfast.cli.operate.looking import connected, json_option
from handfast.cli.operate.table import printable
from handfast.cli.program import ProgramCommand, say
from handfast.cli.supervision.child import LossPlan
from handfast.cli.supervision.signals import Interrupted, Signals
from handfast.cli.taking.acquire import release

if TYPE_CHECKING:
    from handfast import Election, Leader, Leadership
    from handfast._drivers.sync.looping import Loop

__all__ = ["command"]

EPILOG = (
    exit_codes(
        {
            NOTHING: "with --leader: there is no leader",
            IO_ERROR: "the term was lost before COMMAND ended, and that was\nnoticed only then",
            BUSY: "others led for as long as -w allows, or too many wait",
            SIGNALED: "signal n ended the wait",
        },
        program="that of COMMAND, or 128+n if signal n ended it; otherwise",
    )
    + TIMES
    + """
\b
Environment of COMMAND:
  HANDFAST_NAME   NAME as given
  HANDFAST_FENCE  fencing token: a number that grows with every term
  HANDFAST_TOKEN  the right to renew and release this lease; keep it secret

COMMAND should send HANDFAST_FENCE along with each write, so that the resource can refuse those of a former leader.
"""
)


class Options(NamedTuple):
    """The command line. Durations are in seconds."""

    name: str
    command: tuple[str, ...]
    value: str
    ttl: float
    wait: float | None
    max_hold: float | None
    on_lost: Literal["term", "kill", "ignore"]
    kill_after: float
    ready_file: Path | None
    leader: bool
    follow: bool
    as_json: bool
    url: str
    namespace: str
    label: str | None


class ElectCommand(ProgramCommand):
    """Has a COMMAND, or ``--leader``."""

    is_optional = True


@click.command(cls=ElectCommand, epilog=EPILOG, context_settings={"allow_extra_args": True})
@click.argument("name", callback=parse_name)
@click.option("--value", metavar="TEXT", default="", help="Text that others see of this candidate, such as an address.")
@click.option(
    "--ttl",
    callback=parse_duration,
    metavar="TIME",
    default=f"{DEFAULT_TERM_S:g}",
    show_default=True,
    help="For how long there is no leader after a death.",
)
@click.option(
    "-w",
    "--wait",
    callback=parse_duration_or_zero,
    metavar="TIME",
    help="Wait at most this long to be elected; 0 does not wait.  [default: no limit]",
)
@max_hold_option
@loss_options
@click.option(
    "--ready-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="PATH",
    help="A file that exists while COMMAND runs and leads, with the fence in it: for readiness probes.",
)
@click.option("--leader", is_flag=True, help="Print who leads: the value, or the label where there is none.")
@click.option(
    "--follow", is_flag=True, help="With --leader: print each change as well, an empty line if there is no leader."
)
@json_option
@server_options
@namespace_option
@label_option
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Run COMMAND while leading NAME, or see who leads.

    Waits until this candidate is elected, first come, first served, and renews the term while COMMAND runs. The end of
    COMMAND ends the term, and the exit code is returned. If the term is lost, or an operator asks for its end, COMMAND is
    ended (see --on-lost), and this candidate waits to be elected again. So it does through an outage of the server.
    """
    options = Options(**given)
    if options.leader == bool(options.command):
        raise click.UsageError("Give either a COMMAND or --leader.", ctx)
    if not options.leader and (options.follow or options.as_json):
        raise click.UsageError("Use --follow and --json with --leader.", ctx)
    logging.basicConfig(format="handfast: %(message)s")  # the library's warnings look like our messages
    try:
        code = _look(options) if options.leader else _campaign(options)
    except Interrupted as interruption:
        code = SIGNALED + interruption.number
    ctx.exit(code)


def _look(options: Options) -> int:
    with Signals(), connected(options.url, namespace=options.namespace) as client:
        election = client.election(options.name)
        if options.follow:
            for leader in election.observe():
                _show(leader, options)
        leader = election.leader()
        _show(leader, options)
        return 0 if leader else NOTHING


def _show(leader: Leader | None, options: Options) -> None:
    if options.as_json:
        names = ("value", "label", "fence", "led_for", "remaining", "transitions", "candidates")
        found = leader and {name: getattr(leader, name) for name in names}
        click.echo(json.dumps({"name": options.name, "leader": found}))
    elif leader or options.follow:
        click.echo(printable(leader.value or leader.label) if leader else "")


def _campaign(options: Options) -> int:
    """Run the command in each term, until it ends by itself. Return the exit code."""
    from handfast._drivers.sync.looping import Loop

    plan = LossPlan(options.on_lost, options.kill_after)
    with connected(options.url, namespace=options.namespace, label=options.label) as client:
        election = client.election(options.name, value=options.value, ttl=options.ttl, max_hold=options.max_hold)
        with Signals():
            leader = election.leader()
        if leader is not None and leader.fence in fences_around():
            say(
                f"{options.name!r} is led by a `handfast elect` around this one, which ends only after it; use another NAME"
            )
            raise click.exceptions.Exit(USAGE)
        if options.ready_file is not None and (leader is None or not _is_of(options.ready_file, leader.fence)):
            _remove(options.ready_file)  # of a candidate that was killed
        loop, has_led = Loop(client._driver, "election", options.name), False  # noqa: SLF001 -- `Election.run` has one, too
        while True:
            with Signals() as signals:
                term = None
                try:
                    term = _elected(election, options, loop, has_led=has_led)
                    # From the first term on a refusal is waited out as
                    # an outage is: another candidate may not exist.
                    has_led = True
                    with _ready(options.ready_file, term):
                        ended = run_holding(term, options.command, signals, plan)
                finally:  # as in `handfast run`: an interrupt finds a grant in `term`
                    if term is not None:
                        release(term)
            knew = ended.knew_of_loss or ended.preempted
            # Only a loss that has ended the command leads to another
            # term. A command that ends by itself ends the candidate.
            if ended.told_to_end or not knew or options.on_lost == "ignore":
                return ended.exit_code(term, options.command[0], plan)
            say(f"{options.name!r} was {'lost' if term.lost else 'given up'}; waiting to be elected again")


def _elected(election: Election, options: Options, loop: Loop, *, has_led: bool) -> Leadership:
    """Return a term. Raises click's Exit with the exit code that says why there is none.

    The server was reached before, so an outage is waited out. A refusal ends a candidate that has not led yet.
    """
    from handfast import AcquireTimeout, QueueFull, ServerRefused

    timeout = options.wait
    until = inf if timeout is None else monotonic() + timeout
    while True:
        try:
            return election.acquire(timeout=timeout)
        except (AcquireTimeout, QueueFull) as error:
            say(str(error))
            raise click.exceptions.Exit(BUSY) from None
        except BaseException as error:
            pause = loop.after(error)
            if pause is None or monotonic() + pause > until or (isinstance(error, ServerRefused) and not has_led):
                raise
        loop.rest(pause)
        timeout = None if timeout is None else until - monotonic()


@contextlib.contextmanager
def _ready(path: Path | None, term: Leadership) -> Iterator[None]:
    """Have the file exist meanwhile, or until the term is lost."""
    if path is None:
        yield
        return
    try:
        path.write_text(f"{term.fence}\n", encoding="ascii")
    except OSError as error:
        say(f"cannot write {str(path)!r}: {error.strerror}")
        raise click.exceptions.Exit(USAGE) from None

    def remove() -> None:
        if _is_of(path, term.fence):  # else that of the next leader, where several have one path
            _remove(path)

    term.add_lost_callback(remove)
    try:
        yield
    finally:
        remove()


def _is_of(path: Path, fence: int) -> bool:
    """Return whether the file belongs to the term with this fence."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip() == str(fence)
    except OSError:
        return False


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
