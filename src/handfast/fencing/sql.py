"""Rows that remember the largest fence they were written with: for any driver that keeps to DB-API 2.0 (PEP 249).

The table has a column for the fence, a BIGINT that may be NULL, and the statement itself refuses what is older:

    UPDATE "t" SET "state" = ?, "fence" = ? WHERE "t"."id" = ? AND ("t"."fence" IS NULL OR "t"."fence" <= ?)

Only when that matches nothing a SELECT asks why. Both are part of the caller's transaction, which is not committed and
not rolled back here.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any

from handfast.errors import ServerUnsupported
from handfast.fencing.fences import MissingRow, StaleFence, fence_of

__all__ = ["update_if_newer"]

_NAME = re.compile(r"[^\W\d][\w$]*")
"""No quote and no sign of any paramstyle can be in it."""

_MARKS: dict[str, Callable[[int], str]] = {
    "qmark": lambda _: "?",
    "format": lambda _: "%s",
    "numeric": lambda number: f":{number}",
    "named": lambda number: f":p{number}",
    "pyformat": lambda number: f"%(p{number})s",
}
"""What stands in a statement for its parameter of that number, by paramstyle."""


def update_if_newer(
    connection: Any,
    table: str,
    values: Mapping[str, Any],
    fence: int,
    *,
    where: Mapping[str, Any],
    column: str = "fence",
    paramstyle: str | None = None,
    quote: str = '"',
) -> None:
    """Update one row, unless it has seen a newer fence. Raises StaleFence then, and MissingRow where there is none.

    ``connection`` is one of DB-API 2.0, or a cursor. ``table`` may begin with its schema and a dot. ``values`` are the new
    values by column; with none of them only the fence is remembered, which refuses older ones from then on. ``where`` are
    the columns that pick the row, its primary key, and what is in them. ``column`` is the one that remembers the fence: a
    BIGINT, NULL as long as nobody has written with one.

    Names are spelled as in the catalogue, in letters, digits, ``_`` and ``$``, and are quoted: ``quote`` is a backtick for
    MySQL and MariaDB. ``paramstyle`` is asked of the driver's module, and only needed where a wrapper hides it.

    Raises TypeError and ValueError before anything is sent; ValueError also after an update of several rows, since among
    them one that was refused would not show: roll back. ServerUnsupported for a driver that does not count rows; one for
    MySQL must count all that it found (``FOUND_ROWS``), or else what is sent again looks stale.
    """
    form = _Form(table, where, column, paramstyle or _paramstyle(connection), quote)
    update, ask = form.update(values, fence_of(fence)), form.ask()
    row = f"{table} where " + " and ".join(f"{name} = {value!r}" for name, value in where.items())

    with _cursor(connection) as cursor:
        matched = _execute(cursor, update).rowcount
        if matched == 1:
            return
        if matched > 1:
            raise ValueError(
                f"{matched} rows of {row} were updated, and a fence guards one: roll back, name its primary key"
            )
        if matched < 0:
            raise ServerUnsupported(
                f"{type(cursor)!r} does not count the rows of an UPDATE, so a refusal would not show"
            )
        found = [_first(one) for one in _execute(cursor, ask).fetchall()]
    if not found:
        raise MissingRow(row)
    newest = max((int(one) for one in found if one is not None), default=0)
    # Not newer: the SELECT sees what was before, as in a transaction of MySQL. The UPDATE saw what is.
    raise StaleFence(row, fence, newest if newest > fence else None)


class _Statement:
    """A text with marks, and the parameters that they stand for."""

    def __init__(self, paramstyle: str) -> None:
        self.text = ""
        self._paramstyle = paramstyle
        self._values: list[Any] = []

    def mark(self, value: Any) -> str:
        """What stands for the value; to be asked in the order of the text."""
        self._values.append(value)
        return _MARKS[self._paramstyle](len(self._values))

    @property
    def parameters(self) -> tuple[Any, ...] | dict[str, Any]:
        """As the driver takes them."""
        if self._paramstyle in ("named", "pyformat"):
            return {f"p{number}": value for number, value in enumerate(self._values, 1)}
        return tuple(self._values)


class _Form:
    """Makes the statements about one row. Columns are named with their table: SQLite takes others for texts."""

    def __init__(self, table: str, where: Mapping[str, Any], column: str, paramstyle: str, quote: str) -> None:
        if paramstyle not in _MARKS:
            raise ValueError(f"paramstyle must be one of {', '.join(_MARKS)}, not {paramstyle!r}")
        if quote not in ('"', "`"):
            raise ValueError(f"quote must be a double quote or a backtick, not {quote!r}")
        self._paramstyle, self._quote, self._where = paramstyle, quote, where
        if not isinstance(table, str):
            raise TypeError(f"a table must be a str, not {table!r}")
        parts = [self._name(part) for part in table.split(".")]
        self._table, self._here = ".".join(parts), parts[-1]
        self._column = self._name(column)
        self._check("where", where)
        if not where:
            raise ValueError("where must name the columns that pick the row, such as its primary key")

    def update(self, values: Mapping[str, Any], fence: int) -> _Statement:
        self._check("values", values)
        statement = _Statement(self._paramstyle)
        sets = [f"{self._name(name)} = {statement.mark(value)}" for name, value in values.items()]
        sets.append(f"{self._column} = {statement.mark(fence)}")
        guard = f"{self._here}.{self._column}"
        statement.text = (
            f"UPDATE {self._table} SET {', '.join(sets)} WHERE {self._picked(statement)}"  # noqa: S608 -- names are checked
            f" AND ({guard} IS NULL OR {guard} <= {statement.mark(fence)})"
        )
        return statement

    def ask(self) -> _Statement:
        """For the fence that is there."""
        statement = _Statement(self._paramstyle)
        statement.text = f"SELECT {self._here}.{self._column} FROM {self._table} WHERE {self._picked(statement)}"  # noqa: S608 -- names are checked
        return statement

    def _check(self, what: str, given: Mapping[str, Any]) -> None:
        if not isinstance(given, Mapping):
            raise TypeError(f"{what} must be a mapping of columns, not {given!r}")
        if self._column.lower() in (self._name(name).lower() for name in given):
            raise ValueError(f"{self._column} is the column of the fence: it has no place in {what}")

    def _picked(self, statement: _Statement) -> str:
        return " AND ".join(
            f"{self._here}.{self._name(name)} " + ("IS NULL" if value is None else f"= {statement.mark(value)}")
            for name, value in self._where.items()
        )

    def _name(self, name: str) -> str:
        if not isinstance(name, str):
            raise TypeError(f"the name of a table or column must be a str, not {name!r}")
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of letters, digits, _ and $: write the statement yourself")
        return f"{self._quote}{name}{self._quote}"


def _paramstyle(connection: object) -> str:
    """That of the driver, whose module says so: the one that the class, or what it is made from, was defined in."""
    for kind in type(connection).__mro__:
        module = kind.__module__
        while module:
            style = getattr(sys.modules.get(module), "paramstyle", None)
            if isinstance(style, str):
                return style
            module = module.rpartition(".")[0]
    raise TypeError(f"{connection!r} does not show its driver: say which paramstyle= the driver has")


def _cursor(connection: Any) -> AbstractContextManager[Any]:
    """A cursor of the connection, closed at the end; or what was given, if it is one."""
    cursor = connection.cursor() if hasattr(connection, "cursor") else connection
    if inspect.isawaitable(cursor) or inspect.iscoroutinefunction(cursor.execute):
        raise TypeError(f"{connection!r} is an asyncio driver's, and no DB-API 2.0: write the statement yourself")
    return nullcontext(cursor) if cursor is connection else closing(cursor)


def _execute(cursor: Any, statement: _Statement) -> Any:
    """The cursor, which has the result now."""
    cursor.execute(statement.text, statement.parameters)
    return cursor


def _first(row: Any) -> Any:
    """The only column of a row, however the connection gives its rows."""
    return next(iter(row.values())) if isinstance(row, Mapping) else row[0]
