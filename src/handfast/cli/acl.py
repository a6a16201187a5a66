"""``handfast acl``: print the rights needed by a user of the server, as a command for the server."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING

import click

from handfast._kinds import KINDS
from handfast.cli.connect import redis_client, unreachable
from handfast.cli.exits import DONE, NOTHING, UNAVAILABLE, USAGE, exit_codes
from handfast.cli.primitives import parse_uses
from handfast.cli.program import say

if TYPE_CHECKING:
    from handfast.acl import Rights

__all__ = ["command"]

PASSWORD = "#SHA-256-OF-THE-PASSWORD"  # noqa: S105 -- a placeholder, which a server refuses
"""Stands for the password in the printed line."""

OBJECTS = (*KINDS, "lock_all")
"""The objects that a client may use, by the names of the client's methods."""

EPILOG = exit_codes(
    {
        DONE: "the line is printed; with --check: the user has all these rights",
        NOTHING: "with --check: rights are missing; the line that grants them is printed",
        UNAVAILABLE: "with --check: the server cannot be reached, or cannot tell",
    }
)


def _version(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[int, int] | None:
    if value is None:
        return None
    found = re.fullmatch(r"(\d+)\.(\d+)(?:\.\d+)*", value)
    if found is None or (version := (int(found[1]), int(found[2]))) < (6, 2):
        raise click.BadParameter(f"{value!r} is not a version of Redis from 6.2 on, such as 7.2")
    return version


def _user(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    if not value.isprintable() or not value or " " in value:
        raise click.BadParameter("a user name must be printable and without blanks")
    return value


@click.command("acl", epilog=EPILOG)
@click.option("--namespace", metavar="TEXT", default="hf", show_default=True, help="Prefix of the keys on the server.")
@click.option("--user", metavar="TEXT", default="app", show_default=True, callback=_user, help="Name of the user.")
@click.option(
    "--for",
    "wanted",
    default=",".join(OBJECTS),
    show_default=", ".join(OBJECTS),  # with blanks, where lines may end
    metavar="USE,...",
    callback=parse_uses,
    help="What the user works with: any of these; names, which is what ls and show need, and release and hold if they are not to be in the audit; check_server, which is "
    "what doctor needs; operate, which is what all commands of operators need; min_replicas, which is what locks need that wait for replicas; compat and fencing, which both need --key; or all. An rlock is a lock.",
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="PATTERN",
    help="Pattern of the keys on which compat and fencing are used; repeatable.",
)
@click.option(
    "--preloaded",
    is_flag=True,
    help="Let the user run only scripts that `handfast script load` has loaded, and send none.",
)
@click.option(
    "--redis",
    "oldest",
    metavar="VERSION",
    callback=_version,
    help="Oldest Redis version that the line is for; 7.2 stands for any Valkey. From 7.2 on, the line also allows the "
    "CLIENT SETINFO of redis-py, which would fill the ACL LOG otherwise.",
)
@click.option(
    "--cluster",
    is_flag=True,
    help="Allow what it takes to find the primaries of a cluster, and to be woken there. Redis 6.2 needs --redis 6.2 as well.",
)
@click.option(
    "--password-file",
    metavar="FILE",
    type=click.File("r"),
    help="Insert the hash of the password in this file; - reads standard input.",
)
@click.option("--plain", is_flag=True, help="Print the line without comments.")
@click.option(
    "--check", metavar="URL", help="Log in at this URL instead, and report which of the rights the user lacks."
)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    namespace: str,
    user: str,
    wanted: tuple[str, ...],
    keys: tuple[str, ...],
    preloaded: bool,
    oldest: tuple[int, int] | None,
    cluster: bool,
    password_file: IO[str] | None,
    plain: bool,
    check: str | None,
) -> None:
    """Print the ACL SETUSER command for a user with least privilege.

    A server checks each command within a script against the rights of the user that runs the script. The line therefore
    allows every command of the scripts, and no other command, key or channel. It replaces all earlier rights of the
    user.
    """
    from handfast.acl import rights_for

    try:
        rights = rights_for(
            wanted,
            namespace=namespace,
            keys=keys,
            preloaded=preloaded,
            tells_its_name=oldest is not None and not (7, 0) <= oldest < (7, 2),
            cluster=cluster,
            sharded=oldest is None or oldest >= (7, 0),
        )
    except ValueError as error:
        raise click.UsageError(f"{str(error)[:1].upper()}{str(error)[1:]}.", ctx) from None
    if check is not None:
        ctx.exit(_check(check, rights))
    password = PASSWORD if password_file is None else _hashed(ctx, password_file.read())
    if not plain:
        for line in _comments(rights, wanted, namespace, preloaded=preloaded, is_hashed=password_file is not None):
            click.echo(f"# {line}".rstrip())
    click.echo(" ".join(map(_quoted, ("ACL", "SETUSER", user, "reset", "on", password, *rights.rules()))))


def _hashed(ctx: click.Context, text: str) -> str:
    password = text.removesuffix("\n").removesuffix("\r")
    if not password:
        raise click.UsageError("The password is empty.", ctx)
    return f"#{hashlib.sha256(password.encode()).hexdigest()}"


def _quoted(text: str) -> str:
    """Quote a word as redis-cli reads it."""
    if not set(text) & set("\"'"):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _comments(
    rights: Rights, wanted: Sequence[str], namespace: str, *, preloaded: bool, is_hashed: bool
) -> Iterator[str]:
    """Explain the parts of the line."""
    from handfast.acl import NAMESPACED

    where = f" in the namespace {namespace!r}" if set(wanted) & set(NAMESPACED) else ""
    yield f"For {', '.join(wanted)}{where}: least privilege, as a command for redis-cli."
    if not is_hashed:
        yield f"Replace {PASSWORD[1:]} by the SHA-256 of the password, or {PASSWORD} by >PASSWORD."
    yield ""
    runs = "run scripts that an operator has loaded" if preloaded else "run scripts: by digest, or by source if unknown"
    groups = [
        ([f"~{pattern}" for pattern in rights.keys], "keys of the state"),
        ([f"&{pattern}" for pattern in rights.channels], "channels for grants, losses and releases"),
        ([f"+{command}" for command in rights.connection], "sent when a connection is made"),
        ([f"+{command}" for command in rights.running], runs),
        ([f"+{command}" for command in rights.inside], "sent by scripts, on behalf of the user"),
    ]
    for rules, meaning in groups:
        if rules:
            shown = " ".join(rules) if len(rules) < 6 else f"{rules[0]} … {rules[-1]}"
            yield f"{shown}: {meaning}"
    if preloaded:
        yield ""
        yield f"Load the scripts first, and after each restart of a server: handfast script load --for {','.join(wanted)}"
        yield "This needs a user with +script|load. Repeat it on each server that may become the primary."
    yield ""


def _check(url: str, rights: Rights) -> int:
    """Report the missing rights; return the exit code."""
    import redis

    from handfast.acl import missing_rights
    from handfast.errors import HandfastError

    try:
        with redis_client(url) as client:
            missing = missing_rights(client, rights)
            user = client.get_connection_kwargs().get("username") or "default"
    except ValueError as error:
        say(str(error))
        return USAGE
    except (HandfastError, redis.RedisError, OSError) as error:
        say(unreachable(error, url))
        return UNAVAILABLE
    if missing:
        click.echo(" ".join(map(_quoted, ("ACL", "SETUSER", user, *missing))))
        rest = ", and check again: without +eval and +evalsha it can't be asked what else is missing"
        said = rest if {"+eval", "+evalsha"} & {*missing} else ""
        say(f"{user!r} lacks rights; run this line as an operator to grant them{said}")
        return NOTHING
    say(f"{user!r} has all these rights")
    return 0
