"""A web page with holders, waiters and problems, on which operators act.

    from handfast import Handfast
    from handfast.page import app

    application.mount("/handfast", app(Handfast("redis://localhost:6379/0")))

It needs the extra ``handfast[page]``. ``handfast page`` serves it by itself.

`serving` answers requests, `guard` decides who may read and act, `watching` looks at the server in a thread, `board` keeps
the rows and the look with which each field changed, `wire` makes rows of names, and `static` has the page, without a build.
The looks and sentences are those of ``handfast top``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

try:
    import starlette as _  # noqa: F401 -- says which extra is missing, before a module that needs it
except ImportError:
    raise ImportError("handfast.page needs Starlette; install it with: pip install 'handfast[page]'") from None

from handfast._naming import name_publicly
from handfast._watch.acts import ACTS, Act
from handfast.page.guard import Authorize, Visitor

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from handfast import Handfast

__all__ = ["ACTS", "Act", "Authorize", "Visitor", "app"]


def app(client: Handfast, *, allow: Iterable[Act] = (), authorize: Authorize | None = None) -> Starlette:
    """Return the page as an ASGI application, to be served or mounted under any path.

    It looks at the server in a thread, once a second for all who have it open, and not at all from five minutes after the last one
    has left. It never reads the results of `once`, but for the text of a failure.

    Args:
        client: The client for the looks. Its user needs the rights of ``handfast acl --for operate``.
        allow: The acts open to visitors: "release", "hold" (and unhold), "pause" (and resume) and "forget". By default they only look.
        authorize: Called with each request, a ``starlette.requests.Request``; it may be a coroutine function. Returns the
            `Visitor`, or a response to send instead, such as a redirect to a login; anything else refuses. Without it the page is
            for browsers on this machine: a request from another machine, under a name other than this machine's, or with the
            headers of a proxy gets 421. With it, the names under which the page is served are up to the caller.

    Returns:
        The application.

    Raises:
        TypeError: ``client`` is no `Handfast`. Beside an `AsyncHandfast`, make a `Handfast` for the page.
        ValueError: ``allow`` has another text than these four.

    Example:
        async def operators(request):
            user = await user_of(request)  # as your application knows it
            return Visitor(user.name) if user.is_operator else None

        page = app(hf, allow=["release", "hold"], authorize=operators)
        application.mount("/handfast", page)
    """
    from handfast import Handfast
    from handfast.page.guard import check_allowed
    from handfast.page.serving import application
    from handfast.page.watching import Watching

    if not isinstance(client, Handfast):
        raise TypeError(f"the page needs a Handfast, which it uses in a thread, not {type(client).__name__}")
    return application(Watching(client), check_allowed(allow), authorize)


name_publicly(globals())
