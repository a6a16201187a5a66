"""``handfast script load``: have a server know scripts, so that those who run them need not be allowed to send any."""

from __future__ import annotations

from pathlib import Path

import click

from handfast.cli.connect import server_url
from handfast.cli.primitives import ALL, uses

__all__ = ["load"]

REFUSED, UNAVAILABLE = 1, 69

EPILOG = """
\b
Exit codes:
   0  the server knows the scripts
   1  the server refused one, such as a file that is no Lua
   2  wrong usage
  69  the server cannot be reached, or the user may load no scripts
"""


@click.command(epilog=EPILOG)
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option(
    "--for",
    "wanted",
    default=ALL,
    show_default=True,
    metavar="USE,...",
    callback=uses,
    help="What the scripts are for, as in `handfast acl`.",
)
@click.option("--url", help="The server.  [default: $HANDFAST_URL, $REDIS_URL, or one that all your processes share]")
@click.pass_context
def load(ctx: click.Context, /, *, files: tuple[str, ...], wanted: tuple[str, ...], url: str | None) -> None:
    """Load Handfast's own scripts, or those in the files, and print their digests.

    For users who may run scripts but send none: `handfast acl --preloaded`. A server forgets scripts when it ends, and
    tells its replicas of none: load them again then, and on each server that may become the primary.
    """
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    from handfast.errors import NoServer

    scripts = _from(ctx, files) if files else _ours(wanted)
    try:
        with redis.Redis.from_url(server_url(url), decode_responses=True, retry=Retry(NoBackoff(), 0)) as client:
            for name, source in scripts.items():
                click.echo(f"{client.script_load(source)}  {name}")
    except ValueError as error:
        raise click.UsageError(str(error), ctx) from None
    except (NoServer, redis.RedisError, OSError) as error:
        click.echo(f"handfast: {error}", err=True)
        is_refusal = isinstance(error, redis.ResponseError) and not isinstance(
            error, redis.exceptions.NoPermissionError
        )
        ctx.exit(REFUSED if is_refusal else UNAVAILABLE)


def _ours(wanted: tuple[str, ...]) -> dict[str, str]:
    """Our own, and the one that `handfast acl --check` runs."""
    from handfast.acl import scripts_for
    from handfast.acl.check import CHECK

    return {script.name: script.source for script in scripts_for(wanted)} | {CHECK.name: CHECK.source}


def _from(ctx: click.Context, files: tuple[str, ...]) -> dict[str, str]:
    try:
        return {file: Path(file).read_text(encoding="utf-8-sig") for file in files}
    except OSError as error:
        raise click.UsageError(f"Cannot read {error.filename!r}: {error.strerror}.", ctx) from None
    except UnicodeDecodeError:
        raise click.UsageError("One of the files is no UTF-8.", ctx) from None
