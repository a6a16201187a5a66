"""The routes of the page: the files, the changes since a look, and the acts.

The page asks once a second for changes. An answer is not kept open: it would hold a connection, of the few that a browser
has for a host, pass through no buffering proxy, and keep a server from ending while a tab is open.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from importlib.resources import files
from typing import Any, Literal, NamedTuple, cast, get_args

from redis.exceptions import RedisError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from handfast import Handfast
from handfast._engine.validate import encode_name
from handfast._version import __version__
from handfast._watch import thresholds
from handfast._watch.acts import MAX_PAUSE_S, Act, Done, Named, acting_as
from handfast._watch.faces import FACES
from handfast._watch.looker import EVERY_S
from handfast._watch.rows import Key
from handfast.arguments import Kind
from handfast.errors import HandfastError
from handfast.page import wire
from handfast.page.guard import Authorize, Guard, give_cookie, new_cookie, refusal, token_of
from handfast.page.watching import Watching

__all__ = ["application"]

MOST_BYTES = 10_000
"""Of the body of an act."""

MAX_FENCE = 2**53

PAGE = "page.html"

TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}

COMPRESSED_FROM_BYTES, COMPRESSION = 1000, 4


class Asked(NamedTuple):
    """The body of an act."""

    named: Named
    given: dict[str, Any]
    """The reason, and what else the act needs."""


class Doing(NamedTuple):
    """A method of `Named`, as an act of the page."""

    act: Act
    """What the page has to allow for it."""
    done: str
    """The message when it is done, behind the name."""
    nothing: str
    """The message if there was nothing to do."""
    needs: Literal["fence", "seconds", "version", ""] = ""
    """What it needs beside a reason."""
    has_version: bool = False
    """Whether it may say which version was shown: then another one stays as it is."""

    @property
    def kinds(self) -> list[str]:
        """The kinds of names with this act."""
        return [kind for kind, face in FACES.items() if self.act in face.acts]


VERSIONS = {"forget": r"[0-9a-f]{40}|[0-9]{1,6}\.[0-9]{1,16}", "hold": r"[0-9]{1,16}", "pause": r"[1-9][0-9]{0,15}"}
"""By act, how a version looks."""

DOINGS = {
    "release": Doing("release", "is released", "Nothing was taken: who was shown has released it.", "fence"),
    "hold": Doing("hold", "is on hold", "", "seconds", has_version=True),
    "unhold": Doing("hold", "is on hold no more", "It was not on hold.", has_version=True),
    "pause": Doing("pause", "is paused", "", "seconds"),
    "resume": Doing("pause", "is resumed", "It was not paused.", has_version=True),
    "forget": Doing("forget", "is forgotten: the next one does it again", "", "version", has_version=True),
}
"""By the last part of their paths, which are the names of the methods."""


def application(watching: Watching, allowed: frozenset[str], authorize: Authorize | None) -> Starlette:
    """Return the application."""
    routes = [Route("/", _file(PAGE))]
    names = sorted(file.name for file in files("handfast.page").joinpath("static").iterdir())
    routes += [Route(f"/{name}", _file(name)) for name in names if name != PAGE and name.rpartition(".")[2] in TYPES]
    routes += [
        Route("/api/me", partial(_me, watching, allowed)),
        Route("/api/looks", partial(_looks, watching)),
        *(Route(f"/api/{name}", partial(_act, watching, allowed, name), methods=["POST"]) for name in DOINGS),
    ]
    middleware = [
        Middleware(Guard, authorize=authorize),
        Middleware(GZipMiddleware, minimum_size=COMPRESSED_FROM_BYTES, compresslevel=COMPRESSION),
    ]
    return Starlette(routes=routes, middleware=middleware)


def _file(name: str) -> Callable[[Request], Any]:
    content = files("handfast.page").joinpath("static", name).read_bytes()

    async def give(_request: Request) -> Response:
        return Response(content, media_type=TYPES[name.rpartition(".")[2]])

    return give


async def _me(watching: Watching, allowed: frozenset[str], request: Request) -> Response:
    """Name the acts open to the visitor, and give the visitor's token."""
    visitor, cookie = request.state.visitor, new_cookie(request)
    may = [act for act in sorted(allowed) if visitor is None or visitor.allow is None or act in visitor.allow]
    driver = watching.client._driver  # noqa: SLF001 -- ours
    response = JSONResponse(
        {
            "may": may,
            "token": token_of(request, cookie),
            "label": driver.label if visitor is None else visitor.label,
            "namespace": watching.client._namespace,  # noqa: SLF001 -- ours
            "server": driver.address,
            "version": __version__,
            "kinds": wire.kinds(),
            "thresholds": thresholds.of_page(),
            "every": EVERY_S,
        }
    )
    if cookie is not None:
        give_cookie(request, response, cookie)
    return response


async def _looks(watching: Watching, request: Request) -> Response:
    """Return the changes since a look."""
    asked = request.query_params
    seen = _key(asked.get("kind"), asked.get("name"))
    watching.ask(seen)
    after, shown = (_number(asked.get(word, "")) for word in ("after", "shown"))
    answer = partial(watching.board.answer, asked.get("run", ""), after, watching.looker.outage, seen, shown)
    return Response(await run_in_threadpool(answer), media_type="application/json")  # it may be large


def _key(kind: str | None, name: str | None) -> Key | None:
    """Return a kind and a name; None for a missing or unknown kind or name."""
    if kind not in get_args(Kind) or not name:
        return None
    try:
        encode_name(name, "a name")
    except ValueError:
        return None
    return cast("Key", (kind, name))


def _number(text: str) -> int:
    """Return the number of a look; 0 for any other text."""
    return int(text) if re.fullmatch("[0-9]{1,15}", text) else 0


async def _act(watching: Watching, allowed: frozenset[str], name: str, request: Request) -> Response:
    """Act, if the request may."""
    doing = DOINGS[name]
    if why := refusal(request, doing.act, allowed):
        return JSONResponse({"error": why}, 403)
    try:
        asked = _asked(doing, await _body(request))
    except ValueError as error:
        return JSONResponse({"error": str(error)}, 422)
    visitor = request.state.visitor
    try:
        done = await run_in_threadpool(_perform, watching.client, name, asked, visitor and visitor.label)
    except ValueError as error:
        return JSONResponse({"error": str(error)}, 422)
    except (HandfastError, RedisError, OSError) as error:
        return JSONResponse({"error": f"Not known to be done: {error}"}, 503)
    watching.looker.look_soon()
    if not done.taken:
        return JSONResponse({"error": doing.nothing}, 409)
    taken = f": {done.taken:,} lease{'s' * (done.taken != 1)} taken" if name == "release" else ""
    return JSONResponse({"done": done.text(f"{asked.named.shown} {doing.done}{taken}")})


def _perform(client: Handfast, name: str, asked: Asked, label: str | None) -> Done:
    perform: Callable[[Handfast], Done] = partial(getattr(asked.named, name), **asked.given)
    if label is None:
        return perform(client)
    with acting_as(client, label) as operator:
        return perform(operator)


async def _body(request: Request) -> Mapping[str, Any]:
    """Return the JSON of a request. Raises ValueError."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BYTES:
            raise ValueError(f"The request is longer than {MOST_BYTES:,} bytes.")
    try:
        found = json.loads(body)
    except RecursionError:
        raise ValueError("The request is nested too deeply.") from None
    if not isinstance(found, dict):
        raise ValueError("The request is no object.")  # noqa: TRY004 -- for the one handler of bad input
    return found


def _asked(doing: Doing, body: Mapping[str, Any]) -> Asked:
    """Read the body of an act. Raises ValueError."""
    kind, name, reason = (body.get(word) for word in ("kind", "name", "reason"))
    key = _key(kind, name) if isinstance(kind, str) and isinstance(name, str) else None
    if key is None or kind not in doing.kinds:
        raise ValueError(f"A kind, which is one of {', '.join(doing.kinds)}, and a name are needed.")
    if not isinstance(reason, str) or not reason.strip():
        raise ValueError("A reason is needed: it is what others will read.")
    given: dict[str, Any] = {"reason": reason.strip()}
    if doing.needs == "fence":
        given["single"] = body.get("single") is True  # only the lease with this fence
    if doing.has_version:
        given["version"] = _version(body, doing)
    if doing.needs in {"fence", "seconds"}:
        most, value = (MAX_FENCE, MAX_PAUSE_S)[doing.needs == "seconds"], body.get(doing.needs)
        if isinstance(value, bool) or not isinstance(value, int if doing.needs == "fence" else int | float):
            raise ValueError(f"A number is needed as {doing.needs}.")
        # NaN, which `json` reads, fails this comparison as well.
        if not 0 < value <= most:
            raise ValueError(f"A number up to {most:,.0f} is needed as {doing.needs}.")
        given[doing.needs] = value
    return Asked(Named.of(*key), given)


def _version(body: Mapping[str, Any], doing: Doing) -> str:
    """Return which record, hold or pause was shown; empty if the body does not say. Raises ValueError."""
    version = body.get("version")
    if version is None and doing.needs != "version":
        return ""
    if not isinstance(version, str) or not re.fullmatch(VERSIONS[doing.act], version):
        raise ValueError("The version that the page has shown is needed: load the page again.")
    return version
