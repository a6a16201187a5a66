"""Get a cursor whose rows are tuples from a connection, a cursor or a wrapper.

Drivers let a program choose the type of rows: a dict, an object, a single value. Such a choice is set aside
here, on a cursor of our own if possible. Of SQLAlchemy, the DB-API connection behind its objects is used.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

__all__ = ["Target", "first", "plain_cursor", "target_of"]

BY_HAND = "write the statement yourself, as in docs/how-to/fence-a-write.md"


class Target(NamedTuple):
    """Where the statements go."""

    connection: Any
    """A connection or a cursor of the driver."""
    paramstyle: str


def target_of(given: Any, paramstyle: str | None) -> Target:
    """Return the connection or cursor of the driver, and its paramstyle. Raises TypeError for other objects."""
    if not _is_of(given, "sqlalchemy"):
        return Target(given, paramstyle or _paramstyle(given))
    names = {kind.__name__ for kind in type(given).__mro__}
    if names & {"AsyncSession", "AsyncConnection", "async_scoped_session"}:
        raise TypeError(
            f"{given!r} is of asyncio: pass its sync form, as in session.run_sync(lambda sync: update_if_newer(sync, …))"
        )
    if names & {"Engine", "AsyncEngine", "sessionmaker", "async_sessionmaker"}:
        raise TypeError(f"{type(given).__name__} has no transaction of yours; pass a Session or a Connection")
    if callable(
        getattr(type(given), "connection", None)
    ):  # a method; of a pooled connection it is a property, and deprecated
        given = given.connection()  # of a Session: the connection of the transaction
    dialect = getattr(given, "dialect", None)
    pooled = given if hasattr(given, "dbapi_connection") else given.connection
    connection = pooled.dbapi_connection
    return Target(connection, paramstyle or getattr(dialect, "paramstyle", None) or _paramstyle(connection))


def _paramstyle(connection: object) -> str:
    """Return the paramstyle of the module, or of a parent module, that defines the connection's class or a base of it."""
    for kind in type(connection).__mro__:
        module = kind.__module__
        while module:
            style = getattr(sys.modules.get(module), "paramstyle", None)
            if isinstance(style, str):
                return style
            module = module.rpartition(".")[0]
    raise TypeError(f"the driver of {connection!r} is unknown; pass the driver's paramstyle=")


@contextlib.contextmanager
def plain_cursor(given: Any) -> Iterator[Any]:
    """Lend a cursor whose rows are tuples, where the driver supports that. A cursor of the caller stays open."""
    cursor = _own_cursor(given)
    if inspect.isawaitable(cursor) or inspect.iscoroutinefunction(getattr(cursor, "execute", None)):
        if inspect.iscoroutine(cursor):
            cursor.close()
        raise TypeError(f"{given!r} belongs to an asyncio driver, not to DB-API 2.0; {BY_HAND}")
    chosen = cursor.row_factory if _is_of(cursor, "sqlite3") else None
    if chosen is not None:
        cursor.row_factory = None
    try:
        yield cursor
    finally:
        if cursor is not given:
            cursor.close()
        elif chosen is not None:
            cursor.row_factory = chosen


def _own_cursor(given: Any) -> Any:
    if _is_of(given, "psycopg") and not inspect.iscoroutinefunction(getattr(given, "execute", None)):
        psycopg: Any = sys.modules["psycopg"]
        connection = given if isinstance(given, psycopg.Connection) else given.connection
        # Not the class of the factory, which may take other parameters.
        return psycopg.Cursor(connection, row_factory=psycopg.rows.tuple_row)
    if _is_of(given, "psycopg2"):
        psycopg2: Any = sys.modules["psycopg2"]
        plain = psycopg2.extensions.cursor
        connection = given.connection if isinstance(given, plain) else given
        return connection.cursor(cursor_factory=plain)
    make = getattr(given, "cursor", None)  # a cursor may have `cursor` as well: Django's has the wrapped cursor
    return make() if callable(make) else given


def _is_of(given: object, package: str) -> bool:
    return any(kind.__module__.partition(".")[0] == package for kind in type(given).__mro__)


def first(row: Any) -> Any:
    """Return the only column of a row, which may be a mapping, a sequence, or the value itself."""
    if isinstance(row, Mapping):
        return next(iter(row.values()))
    try:
        return row[0]
    except TypeError:
        return row
