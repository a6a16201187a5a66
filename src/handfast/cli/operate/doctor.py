"""``handfast doctor``: whether the server keeps the promises of the locks, and whether the user has the rights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from handfast._engine.defaults import EMBEDDED
from handfast.cli.connect import namespace_option, server_options
from handfast.cli.exits import DONE, NOTHING, UNAVAILABLE, exit_codes
from handfast.cli.operate.looking import connected, json_option
from handfast.cli.primitives import parse_uses

if TYPE_CHECKING:
    from handfast import ServerFinding

__all__ = ["command"]

EPILOG = exit_codes(
    {
        DONE: "no failure was found; with --strict: no warning either",
        NOTHING: "a failure was found, or with --strict a warning",
        UNAVAILABLE: "the server cannot be reached",
    }
)


@click.command("doctor", epilog=EPILOG)
@click.option(
    "--for",
    "wanted",
    default="lock,semaphore,rwlock,lock_all",
    show_default=True,
    metavar="USE,...",
    callback=parse_uses,
    help="What the user works with, as in `handfast acl`: its rights are checked for that.",
)
@click.option("--strict", is_flag=True, help="Exit 1 for warnings, too.")
@json_option
@server_options
@namespace_option
@click.pass_context
def command(
    ctx: click.Context, /, *, wanted: tuple[str, ...], strict: bool, as_json: bool, url: str, namespace: str
) -> None:
    """Check whether the server keeps what the locks promise.

    Looks at eviction, persistence, replicas, limits, the clock, and the rights of the user, and says what to change.
    Changes nothing itself.
    """
    from handfast import ServerRefused
    from handfast.cli.operate import objects, table, words

    with connected(url, namespace=namespace) as client:
        try:
            found = [*client.check_server()]
        except ServerRefused as refused:  # the connection for grants; the rights tell what else the user lacks
            found = [_failure(str(refused))]
        if url != EMBEDDED:
            found += _rights(url, wanted, namespace)
    if as_json:
        for one in found:
            click.echo(objects.dumped(asdict(one)))
    else:
        for line in words.diagnosis(found, table.width()):
            click.echo(line)
    bad = {"failure", "warning"} if strict else {"failure"}
    ctx.exit(int(any(one.severity in bad for one in found)))


def _rights(url: str, wanted: Sequence[str], namespace: str) -> Iterator[ServerFinding]:
    """Yield the rights missing from the user of this URL."""
    import redis

    from handfast import ServerFinding, ServerUnsupported
    from handfast._drivers.addresses import pool_of_url
    from handfast.acl import missing_rights, rights_for

    uses = ", ".join(wanted)
    with redis.Redis.from_pool(pool_of_url(url, redis)) as client:
        user = client.connection_pool.connection_kwargs.get("username") or "default"
        try:
            missing = missing_rights(client, rights_for(wanted, namespace=namespace))
        except ServerUnsupported:
            yield ServerFinding("info", "rights", "this server cannot tell which rights a user has")
            return
    if missing:
        text = f"the user {user!r} lacks rights for {uses}"
        yield ServerFinding("failure", "rights", text, command=" ".join(("ACL SETUSER", user, *missing)))
    else:
        yield ServerFinding("ok", "rights", f"the user {user!r} has all rights for {uses}")


def _failure(text: str) -> ServerFinding:
    from handfast import ServerFinding

    return ServerFinding("failure", "rights", text)
