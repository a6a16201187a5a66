"""``handfast script load``: load scripts into a server, for users that may run scripts but not send them."""

from __future__ import annotations

from pathlib import Path

import click

from handfast.cli.connect import redis_client, server_options, unreachable
from handfast.cli.exits import UNAVAILABLE
from handfast.cli.primitives import ALL, parse_uses

__all__ = ["load"]

REFUSED = 1
"""Exit code if the server refused a script."""

EPILOG = """
\b
Exit codes:
   0  the scripts are loaded
   1  the server refused a script, such as a file that is not Lua
  64  wrong usage
  69  the server cannot be reached, or the user may not load scripts
"""


@click.command(epilog=EPILOG)
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option(
    "--for",
    "wanted",
    default=ALL,
    show_default=True,
    metavar="USE,...",
    callback=parse_uses,
    help="Load the scripts of these objects; the names are those of `handfast acl`.",
)
@server_options
@click.pass_context
def load(ctx: click.Context, /, *, files: tuple[str, ...], wanted: tuple[str, ...], url: str) -> None:
    """Load scripts into the server and print their digests.

    Without FILE, loads the scripts of Handfast, for users made with `handfast acl --preloaded`. A server forgets
    scripts when it restarts and does not replicate them: load them after each restart, and on each server that may
    become the primary.
    """
    import redis

    from handfast.errors import NoServer

    scripts = _read(ctx, files) if files else _own_scripts(wanted)
    try:
        with redis_client(url, decode_responses=True) as client:
            for name, source in scripts.items():
                click.echo(f"{client.script_load(source)}  {name}")
    except ValueError as error:
        raise click.UsageError(str(error), ctx) from None
    except (NoServer, redis.RedisError, OSError) as error:
        click.echo(f"handfast: {unreachable(error, url)}", err=True)
        is_refusal = isinstance(error, redis.ResponseError) and not isinstance(
            error, redis.exceptions.NoPermissionError
        )
        ctx.exit(REFUSED if is_refusal else UNAVAILABLE)


def _own_scripts(wanted: tuple[str, ...]) -> dict[str, str]:
    """Return the scripts of the product, with the one that `handfast acl --check` runs."""
    from handfast.acl import scripts_for
    from handfast.acl.check import CHECK

    return {script.name: script.source for script in scripts_for(wanted)} | {CHECK.name: CHECK.source}


def _read(ctx: click.Context, files: tuple[str, ...]) -> dict[str, str]:
    try:
        return {file: Path(file).read_text(encoding="utf-8-sig") for file in files}
    except OSError as error:
        raise click.UsageError(f"Cannot read {error.filename!r}: {error.strerror}.", ctx) from None
    except UnicodeDecodeError:
        raise click.UsageError("One of the files is not UTF-8.", ctx) from None
