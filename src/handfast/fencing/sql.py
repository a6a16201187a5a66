"""Fenced updates of database rows, for any driver with the DB-API 2.0 (PEP 249).

The table has a column for the fence, a BIGINT that may be NULL, and the statement itself refuses older fences:

    UPDATE "t" SET "state" = ?, "fence" = ? WHERE "t"."id" = ? AND ("t"."fence" IS NULL OR "t"."fence" <= ?)

If it matches no row, a SELECT finds out why. Both run in the caller's transaction, which is neither committed nor
rolled back here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from handfast.errors import ServerUnsupported
from handfast.fencing.connections import first, plain_cursor, target_of
from handfast.fencing.fences import MissingRow, StaleFence, check_fence

__all__ = ["update_if_newer"]

_NAME = re.compile(r"[^\W\d][\w$]*")
"""Names that contain no quote and no parameter mark of any paramstyle."""

_MARKS: dict[str, Callable[[int], str]] = {
    "qmark": lambda _: "?",
    "format": lambda _: "%s",
    "numeric": lambda number: f":{number}",
    "numeric_dollar": lambda number: f"${number}",
    "named": lambda number: f":p{number}",
    "pyformat": lambda number: f"%(p{number})s",
}
"""The mark of the parameter with that number in a statement, by paramstyle."""


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
    """Update one row, unless it has seen a newer fence.

    The statement runs in the current transaction of the connection; commit it as usual. Names of tables and columns are
    spelled as in the catalogue, consist of letters, digits, ``_`` and ``$``, and are quoted.

    Args:
        connection: A connection or cursor of a DB-API 2.0 driver, whatever the type of rows; or a Session or Connection of
            SQLAlchemy, whose transaction is used: refresh a row that the Session has loaded. A MySQL driver must
            count matched rows and not only changed ones (``FOUND_ROWS``); otherwise a repeated write looks stale.
        table: The table, perhaps as ``schema.table``.
        values: The new values by column. If empty, only the fence is stored, so older ones are refused from then on.
        fence: The fence of the writer, such as ``lease.fence``; 0 to 2**53 - 1.
        where: The columns that select the row, its primary key, with their values.
        column: The column with the fence: a BIGINT, NULL until the first fenced write.
        paramstyle: The paramstyle of the driver. By default it is read from the driver's module; give it if a wrapper
            hides the driver.
        quote: The quote of names: ``"`` by default, a backtick for MySQL and MariaDB.

    Raises:
        StaleFence: The row has seen a newer fence.
        MissingRow: There is no such row.
        TypeError: An argument has the wrong type, or the driver is an asyncio driver or unknown. Nothing was sent.
        ValueError: An argument is invalid, and nothing was sent; or several rows were updated: roll back.
        ServerUnsupported: The driver does not count the rows of an UPDATE.

    Example:
        >>> with hf.lock("report:7") as lease:
        ...     update_if_newer(db, "reports", {"body": body}, lease.fence, where={"id": 7})
        ...     db.commit()

    """
    target = target_of(connection, paramstyle)
    builder = _Builder(table, where, column, target.paramstyle, quote)
    update, select = builder.update(values, check_fence(fence)), builder.select()
    row = f"{table} where " + " and ".join(f"{name} = {value!r}" for name, value in where.items())

    with plain_cursor(target.connection) as cursor:
        matched = _execute(cursor, update).rowcount
        if matched == 1:
            return
        if matched > 1:
            raise ValueError(
                f"{matched} rows of {row} were updated, and a fence guards one row: roll back, and name its primary key"
            )
        if matched < 0:
            raise ServerUnsupported(
                f"{type(cursor)!r} does not count the rows of an UPDATE, so a refusal would go unnoticed"
            )
        found = [first(one) for one in _execute(cursor, select).fetchall()]
    if not found:
        raise MissingRow(row)
    newest = max((int(one) for one in found if one is not None), default=0)
    # A fence that is not newer: the SELECT read an old snapshot, as in a transaction of MySQL; the UPDATE did not.
    raise StaleFence(row, fence, newest if newest > fence else None)


class _Statement:
    """A statement with parameter marks, and its parameters."""

    def __init__(self, paramstyle: str) -> None:
        self.text = ""
        self._paramstyle = paramstyle
        self._values: list[Any] = []

    def mark(self, value: Any) -> str:
        """Add a parameter and return the mark. Called in the order of the text."""
        self._values.append(value)
        return _MARKS[self._paramstyle](len(self._values))

    @property
    def parameters(self) -> tuple[Any, ...] | dict[str, Any]:
        """The parameters in the form for the paramstyle."""
        if self._paramstyle in ("named", "pyformat"):
            return {f"p{number}": value for number, value in enumerate(self._values, 1)}
        return tuple(self._values)


class _Builder:
    """Builds the statements for one row.

    Columns are qualified by their table, because SQLite reads an unknown quoted name as a string.
    """

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
            raise ValueError("where must name the columns that select the row, such as its primary key")

    def update(self, values: Mapping[str, Any], fence: int) -> _Statement:
        self._check("values", values)
        statement = _Statement(self._paramstyle)
        sets = [f"{self._name(name)} = {statement.mark(value)}" for name, value in values.items()]
        sets.append(f"{self._column} = {statement.mark(fence)}")
        guard = f"{self._here}.{self._column}"
        statement.text = (
            f"UPDATE {self._table} SET {', '.join(sets)} WHERE {self._condition(statement)}"  # noqa: S608 -- names are checked
            f" AND ({guard} IS NULL OR {guard} <= {statement.mark(fence)})"
        )
        return statement

    def select(self) -> _Statement:
        """Return the statement to read the stored fence."""
        statement = _Statement(self._paramstyle)
        statement.text = f"SELECT {self._here}.{self._column} FROM {self._table} WHERE {self._condition(statement)}"  # noqa: S608 -- names are checked
        return statement

    def _check(self, argument: str, given: Mapping[str, Any]) -> None:
        if not isinstance(given, Mapping):
            raise TypeError(f"{argument} must be a mapping of columns, not {given!r}")
        if self._column.lower() in (self._name(name).lower() for name in given):
            raise ValueError(f"{self._column} is the column of the fence; it may not be in {argument}")

    def _condition(self, statement: _Statement) -> str:
        return " AND ".join(
            f"{self._here}.{self._name(name)} " + ("IS NULL" if value is None else f"= {statement.mark(value)}")
            for name, value in self._where.items()
        )

    def _name(self, name: str) -> str:
        if not isinstance(name, str):
            raise TypeError(f"the name of a table or column must be a str, not {name!r}")
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is not a name of letters, digits, _ and $; write the statement yourself, as in docs/how-to/fence-a-write.md"
            )
        return f"{self._quote}{name}{self._quote}"


def _execute(cursor: Any, statement: _Statement) -> Any:
    cursor.execute(statement.text, statement.parameters)
    return cursor
