"""The client of an application of Celery. A pool forks: the client begins anew in each process of the pool."""

from __future__ import annotations

from typing import Any

from celery import Celery

from handfast import Handfast, NoServer
from handfast.contrib._common import client_for

__all__ = ["client", "configure"]


def configure(app: Celery, server: Handfast | str | None = None, **options: Any) -> Handfast:
    """Give an application a client, and return the client. No I/O.

    Without it, the client is made when it is first used, with the URL ``app.conf.handfast_url``, else ``$HANDFAST_URL``.

    Args:
        app: The application.
        server: A URL, a client of the sync API, or None for ``$HANDFAST_URL``, else ``$REDIS_URL``.
        options: Of the new client: ``namespace``, ``label``, ``retry_for``, and so on.

    Raises:
        NoServer: ``server`` is None and no variable is set.
        TypeError: ``options`` beside a client.
        ValueError: The URL is none, or an option is out of range.
    """
    app.handfast = made = client_for(Handfast, server, options)
    return made


def client(app: Celery) -> Handfast:
    """Return the client of an application."""
    found: Handfast | None = getattr(app, "handfast", None)
    if found is not None:
        return found
    try:
        return configure(app, app.conf.get("handfast_url"))
    except NoServer as error:
        error.add_note("In Celery: call configure(app, url), or set app.conf.handfast_url.")
        raise
