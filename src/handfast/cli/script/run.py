"""``handfast script run``: one call of a script, to see what it answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from handfast._engine.header import Header, HeaderError, read_header
from handfast.cli.connect import server_url
from handfast.cli.script.shown import plain, printable, readable

if TYPE_CHECKING:
    import redis

__all__ = ["run"]

WRONG, UNAVAILABLE = 1, 69
STDIN = "-"

EPILOG = """
\b
Exit codes:
   0  the script has answered, and the answer is printed
   1  the script failed, or answered an error
   2  wrong usage, such as a key that the header does not name
  69  the server cannot be reached
"""


@click.command(epilog=EPILOG)
@click.argument("file")
@click.option(
    "--key", "keys", multiple=True, metavar="NAME=VALUE", help="A key, by its name in the header; repeatable."
)
@click.option(
    "--arg", "args", multiple=True, metavar="NAME=VALUE", help="An argument, by its name in the header; repeatable."
)
@click.option("--url", help="The server.  [default: $HANDFAST_URL, $REDIS_URL, or one that all your processes share]")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
@click.pass_context
def run(
    ctx: click.Context, /, *, file: str, keys: tuple[str, ...], args: tuple[str, ...], url: str | None, as_json: bool
) -> None:
    """Try the script FILE on a server, and print what it answers.

    A name that ends with three dots in the header takes any number of values: give the option as often. For a script
    without KEYS and ARGV in its header, leave the names away: the values are passed in their order.
    """
    path = Path(file)
    try:
        source = sys.stdin.read() if file == STDIN else path.read_text(encoding="utf-8")
        header = read_header(source)
    except HeaderError as fault:
        raise click.UsageError(
            f"The header of {file!r} cannot be understood, on line {fault.line}: {fault}.", ctx
        ) from None
    except OSError as error:
        raise click.UsageError(f"Cannot read {file!r}: {error.strerror}.", ctx) from None
    except UnicodeDecodeError:
        raise click.UsageError(f"{file!r} is no UTF-8.", ctx) from None
    values = _values(ctx, header, keys, args)
    reply = _ask(ctx, "<stdin>" if file == STDIN else file, source, values, url)
    if as_json:
        click.echo(json.dumps(plain(reply, header), ensure_ascii=False))
    else:
        click.echo("\n".join(readable(reply, header)))


def _values(ctx: click.Context, header: Header, keys: Sequence[str], args: Sequence[str]) -> dict[str, Any]:
    """What the script is called with, by name; checked before anybody is asked for anything."""
    if not header.declares:
        return {"keys": keys, "args": args}
    return _named(ctx, "--key", header.keys, keys, more=header.more_keys) | _named(
        ctx, "--arg", header.args, args, more=header.more_args
    )


def _named(
    ctx: click.Context, option: str, names: Sequence[str], given: Sequence[str], *, more: bool
) -> dict[str, Any]:
    values: dict[str, Any] = {names[-1]: []} if more else {}
    known = ", ".join(names) or "none"
    for one in given:
        name, is_named, value = one.partition("=")
        if not is_named or name not in names:
            raise click.UsageError(
                f"{option} {one!r} begins with no name of the header and '='; its names are: {known}.", ctx
            )
        if more and name == names[-1]:
            values[name].append(value)
        elif name in values:
            raise click.UsageError(
                f"{option} {name} is given twice; only a name with three dots in the header takes several values.", ctx
            )
        else:
            values[name] = value
    if missing := [name for name in names if name not in values]:
        raise click.UsageError(f"Missing: {', '.join(f'{option} {name}=...' for name in missing)}", ctx)
    return values


def _ask(ctx: click.Context, name: str, source: str, values: Mapping[str, Any], url: str | None) -> Any:
    """What the script answers, or the end with the exit code that says why it does not."""
    import redis

    from handfast import HandfastError, Script, ScriptError

    try:
        with _client(ctx, url) as client:
            return Script(source, name=name)(client, **values)
    except ScriptError as error:
        click.echo(f"{error.name}:{error.line}: {error.reason}", err=True)
        click.echo(f"{error.line:5} | {printable(error.source_line)}", err=True)
    except redis.ResponseError as error:
        click.echo(f"(error) {error}", err=True)
    except (HandfastError, redis.RedisError, OSError) as error:
        click.echo(f"handfast: {error}", err=True)
        raise click.exceptions.Exit(UNAVAILABLE) from None
    except ValueError as error:  # the answer is none that the header lists
        click.echo(f"handfast: {error}", err=True)
    raise click.exceptions.Exit(WRONG)


def _client(ctx: click.Context, url: str | None) -> redis.Redis:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    try:
        # Sent once and no more: what a script does the second time, nobody knows who only tries it.
        return redis.Redis.from_url(server_url(url), retry=Retry(NoBackoff(), 0))
    except ValueError as error:
        raise click.UsageError(str(error), ctx) from None
