"""``handfast script run``: call a script once and print its reply."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from handfast._engine.header import Header, HeaderError, read_header
from handfast.cli.connect import redis_client, server_options, unreachable
from handfast.cli.exits import UNAVAILABLE
from handfast.cli.operate.table import printable
from handfast_lint.command.format import to_json, to_text

if TYPE_CHECKING:
    import redis

__all__ = ["run"]

WRONG = 1
"""Exit code if the script failed or replied with an error."""

STDIN = "-"

EPILOG = """
\b
Exit codes:
   0  the reply is printed
   1  the script failed, or replied with an error
  64  wrong usage, such as a key that the header does not name
  69  the server cannot be reached
"""


@click.command(epilog=EPILOG)
@click.argument("file")
@click.option(
    "--key", "keys", multiple=True, metavar="NAME=VALUE", help="Key with this name in the header; repeatable."
)
@click.option(
    "--arg", "args", multiple=True, metavar="NAME=VALUE", help="Argument with this name in the header; repeatable."
)
@server_options
@click.option("--json", "as_json", is_flag=True, help="Print the reply as JSON.")
@click.pass_context
def run(
    ctx: click.Context, /, *, file: str, keys: tuple[str, ...], args: tuple[str, ...], url: str, as_json: bool
) -> None:
    """Run the script FILE once on a server and print its reply.

    A name that ends with three dots in the header takes any number of values: repeat the option for each. If the header
    declares no KEYS and ARGV, omit the names: the values are passed in the given order.

    FILE may be - for standard input.
    """
    path = Path(file)
    try:
        source = (sys.stdin.read() if file == STDIN else path.read_text(encoding="utf-8")).removeprefix("\ufeff")
        header = read_header(source)
    except HeaderError as fault:
        raise click.UsageError(f"The header of {file!r} is wrong, on line {fault.line}: {fault}.", ctx) from None
    except OSError as error:
        raise click.UsageError(f"Cannot read {file!r}: {error.strerror}.", ctx) from None
    except UnicodeDecodeError:
        raise click.UsageError(f"{file!r} is not UTF-8.", ctx) from None
    # As the bytes that were given, which need not be UTF-8.
    values = _values(ctx, header, [*map(os.fsencode, keys)], [*map(os.fsencode, args)])
    reply = _call(ctx, "<stdin>" if file == STDIN else file, source, values, url)
    if as_json:
        text = json.dumps(to_json(reply, header), ensure_ascii=False)
        click.echo("".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text))
    else:
        click.echo("\n".join(to_text(reply, header)))


def _values(ctx: click.Context, header: Header, keys: Sequence[bytes], args: Sequence[bytes]) -> dict[str, Any]:
    """Return the keys and arguments of the call by name, checked before the server is contacted."""
    if not header.declares:
        return {"keys": keys, "args": args}
    return _named(ctx, "--key", header.keys, keys, more=header.more_keys) | _named(
        ctx, "--arg", header.args, args, more=header.more_args
    )


def _named(
    ctx: click.Context, option: str, names: Sequence[str], given: Sequence[bytes], *, more: bool
) -> dict[str, Any]:
    values: dict[str, Any] = {names[-1]: []} if more else {}
    known = ", ".join(names) or "none"
    for one in given:
        head, is_named, value = one.partition(b"=")
        name = head.decode(errors="replace")
        if not is_named or name not in names:
            raise click.UsageError(
                f"{option} {os.fsdecode(one)!r} does not start with NAME= for a name of the header; its names are: {known}.",
                ctx,
            )
        if more and name == names[-1]:
            values[name].append(value)
        elif name in values:
            raise click.UsageError(
                f"{option} {name} is given twice; only a name that ends with three dots in the header takes several values.",
                ctx,
            )
        else:
            values[name] = value
    if missing := [name for name in names if name not in values]:
        raise click.UsageError(f"Missing: {', '.join(f'{option} {name}=...' for name in missing)}", ctx)
    return values


def _call(ctx: click.Context, name: str, source: str, values: Mapping[str, Any], url: str) -> Any:
    """Return the reply. Raises click's Exit with the exit code that says why there is none."""
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
        click.echo(f"handfast: {unreachable(error, url)}", err=True)
        raise click.exceptions.Exit(UNAVAILABLE) from None
    except ValueError as error:  # the header does not list this reply
        click.echo(f"handfast: {error}", err=True)
    raise click.exceptions.Exit(WRONG)


def _client(ctx: click.Context, url: str) -> redis.Redis | redis.RedisCluster:
    """Return a client that never sends again: a script under trial may not be idempotent."""
    try:
        return redis_client(url)
    except ValueError as error:
        raise click.UsageError(str(error), ctx) from None
