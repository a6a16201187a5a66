"""``handfast acl``: the rights that a user of the server needs, as a line for the server."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING

import click

from handfast.cli.primitives import uses

if TYPE_CHECKING:
    from handfast.acl import Rights

__all__ = ["command"]

MISSING, USAGE, UNAVAILABLE = 1, 2, 69

PASSWORD = "#SHA-256-OF-THE-PASSWORD"  # noqa: S105 -- no password: a server refuses the line until somebody puts one in
"""Where the password goes."""

EPILOG = """
\b
Exit codes:
   0  the line is printed; with --check: the user has all these rights
   1  with --check: some are missing, and what grants them is printed
   2  wrong usage
  69  with --check: the server cannot be reached, or cannot tell
"""


def _version(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[int, int] | None:
    if value is None:
        return None
    found = re.fullmatch(r"(\d+)\.(\d+)(?:\.\d+)*", value)
    if found is None or (version := (int(found[1]), int(found[2]))) < (6, 2):
        raise click.BadParameter(f"{value!r} is no version from 6.2 on")
    return version


def _user(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    if not value.isprintable() or not value or " " in value:
        raise click.BadParameter("a name must be printable and without blanks")
    return value


@click.command("acl", epilog=EPILOG)
@click.option("--namespace", default="hf", show_default=True, help="What keys on the server begin with.")
@click.option("--user", default="app", show_default=True, callback=_user, help="What the user is called.")
@click.option(
    "--for",
    "wanted",
    default="lock,semaphore,rwlock,lock_all,autocomplete,scores",
    show_default=True,
    metavar="USE,...",
    callback=uses,
    help="What it uses: these, compat and fencing, which want --key, or all. An rlock is a lock.",
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="PATTERN",
    help="A pattern of the keys that compat and fencing are used on; repeatable.",
)
@click.option(
    "--preloaded", is_flag=True, help="It may not send scripts, only run those that `handfast script load` has loaded."
)
@click.option(
    "--redis",
    "oldest",
    metavar="VERSION",
    callback=_version,
    help="The server is that of Redis at least; 7.2 for any Valkey. From 7.2 on the line keeps the ACL LOG quiet.",
)
@click.option(
    "--password-file",
    type=click.File("r"),
    help="Put in the hash of the password that stands there; - is the standard input.",
)
@click.option("--plain", is_flag=True, help="Print the line alone.")
@click.option(
    "--check", metavar="URL", help="Log in there instead, and say which of these rights the user does not have."
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
    password_file: IO[str] | None,
    plain: bool,
    check: str | None,
) -> None:
    """Print the least rights that a user of the server needs, as ACL SETUSER takes them.

    A server holds each command within a script against the rights of whoever runs the script. So the line names them
    all, read off the scripts; and no other command, key or channel. It makes the user anew, whatever it was before.
    """
    from handfast.acl import rights_for

    try:
        rights = rights_for(
            wanted,
            namespace=namespace,
            keys=keys,
            preloaded=preloaded,
            tells_its_name=oldest is not None and not (7, 0) <= oldest < (7, 2),
        )
    except ValueError as error:
        raise click.UsageError(f"{str(error)[:1].upper()}{str(error)[1:]}.", ctx) from None
    if check is not None:
        ctx.exit(_check(check, rights))
    password = PASSWORD if password_file is None else _hashed(ctx, password_file.read())
    if not plain:
        for line in _told(rights, wanted, namespace, preloaded=preloaded, is_hashed=password_file is not None):
            click.echo(f"# {line}".rstrip())
    click.echo(" ".join(map(_word, ("ACL", "SETUSER", user, "reset", "on", password, *rights.rules()))))


def _hashed(ctx: click.Context, text: str) -> str:
    password = text.removesuffix("\n").removesuffix("\r")
    if not password:
        raise click.UsageError("The password is empty.", ctx)
    return f"#{hashlib.sha256(password.encode()).hexdigest()}"


def _word(text: str) -> str:
    """A word as redis-cli reads it from a line."""
    if not set(text) & set("\"'"):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _told(rights: Rights, wanted: Sequence[str], namespace: str, *, preloaded: bool, is_hashed: bool) -> Iterator[str]:
    """What the parts of the line are for."""
    from handfast.acl import NAMESPACED

    where = f" in the namespace {namespace!r}" if set(wanted) & set(NAMESPACED) else ""
    yield f"For {', '.join(wanted)}{where}: the least that is needed, for redis-cli."
    if not is_hashed:
        yield f"Put the password's SHA-256 in place of {PASSWORD[1:]}, or >PASSWORD in place of the whole word."
    yield ""
    runs = "run scripts, which somebody else has loaded" if preloaded else "run scripts: by digest, whole if need be"
    groups = [
        ([f"~{pattern}" for pattern in rights.keys], "where the state is kept"),
        ([f"&{pattern}" for pattern in rights.channels], "where it is told of grants, losses and releases"),
        ([f"+{command}" for command in rights.connection], "what a connection begins with"),
        ([f"+{command}" for command in rights.running], runs),
        ([f"+{command}" for command in rights.inside], "what scripts send, which counts as sent by the user"),
    ]
    for rules, meaning in groups:
        if rules:
            shown = " ".join(rules) if len(rules) < 6 else f"{rules[0]} … {rules[-1]}"
            yield f"{shown}: {meaning}"
    if preloaded:
        yield ""
        yield f"Load the scripts first, and whenever a server has started anew: handfast script load --for {','.join(wanted)}"
        yield "That takes a user who may +script|load, on each server that may become the primary."
    yield ""


def _check(url: str, rights: Rights) -> int:
    """Say what is missing; the exit code."""
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    from handfast.acl import missing_rights
    from handfast.errors import HandfastError

    try:
        with redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0)) as client:
            missing = missing_rights(client, rights)
            user = client.connection_pool.connection_kwargs.get("username") or "default"
    except ValueError as error:
        click.echo(f"handfast: {error}", err=True)
        return USAGE
    except (HandfastError, redis.RedisError, OSError) as error:
        click.echo(f"handfast: {error}", err=True)
        return UNAVAILABLE
    if missing:
        click.echo(" ".join(map(_word, ("ACL", "SETUSER", user, *missing))))
        click.echo(f"handfast: {user!r} lacks {len(missing)} of these rights; as an operator, run that line", err=True)
        return MISSING
    click.echo(f"handfast: {user!r} has all these rights", err=True)
    return 0
