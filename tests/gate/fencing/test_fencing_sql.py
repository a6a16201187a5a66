"""Fenced updates of rows: on SQLite, with drivers of every paramstyle, and by a writer that was paused."""

from __future__ import annotations

import contextlib
import pickle
import re
import sqlite3
import sys
import types
from collections import namedtuple
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handfast import HandfastError, ServerUnsupported
from handfast.fencing import MissingRow, StaleFence, update_if_newer

OLD, NOW, NEW = 1_763_729_675_123_455, 1_763_729_675_123_456, 1_763_729_675_123_457
"""Fences a microsecond apart, as leases have them."""

STYLES = ["qmark", "format", "numeric", "named", "pyformat"]


class Speaking:
    """A connection to SQLite, or its cursor, with the paramstyle of another driver."""

    def __init__(self, real, paramstyle):
        self.real, self.paramstyle = real, paramstyle
        self.log = []

    def cursor(self):
        return SpeakingCursor(self)


class SpeakingCursor:
    def __init__(self, connection):
        self._connection, self._real = connection, connection.real.cursor()

    def __getattr__(self, name):
        return getattr(self._real, name)

    def execute(self, text, parameters):
        style = self._connection.paramstyle
        self._connection.log.append((text, parameters))
        assert type(parameters) is (dict if style in {"named", "pyformat"} else tuple)
        patterns = {"format": ("%s", "?"), "numeric": (r":(\d+)", r":p\1"), "pyformat": (r"%\((\w+)\)s", r":\1")}
        if style == "numeric":
            parameters = {f"p{number}": value for number, value in enumerate(parameters, 1)}
        return self._real.execute(re.sub(*patterns[style], text) if style in patterns else text, parameters)


@pytest.fixture
def db():
    """A table with rows that have no fence yet."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.execute('CREATE TABLE reports (id INTEGER PRIMARY KEY, body TEXT, "order" TEXT, fence BIGINT)')
        db.executemany("INSERT INTO reports (id, body) VALUES (?, 'empty')", [(7,), (8,)])
        db.commit()
        yield db


@pytest.fixture(params=STYLES)
def driver(request, db):
    """The table through a driver of each paramstyle."""
    return Speaking(db, request.param)


def bodies(db):
    return dict(db.execute("SELECT id, body FROM reports"))


def update(connection, body, fence, **options):
    return update_if_newer(connection, "reports", {"body": body}, fence, **({"where": {"id": 7}} | options))


def refused(*args, **options):
    with pytest.raises(StaleFence) as caught:
        update(*args, **options)
    return caught.value


# --- passing and refused writes


def test_older_fence_is_refused_and_equal_or_newer_ones_pass(driver, db):
    style = {"paramstyle": driver.paramstyle}
    assert update(driver, "a", NOW, **style) is None, "the first fenced write"
    assert update(driver, "b", NOW, **style) is None, "a holder writes more than once"
    assert update(driver, "b", NOW, **style) is None, "repeated after a lost reply"
    stale = refused(driver, "c", OLD, **style)
    assert (stale.key, stale.fence, stale.newer) == ("reports where id = 7", OLD, NOW)
    assert bodies(db) == {7: "b", 8: "empty"}
    assert update(driver, "d", NEW, **style) is None
    assert refused(driver, "e", NOW, **style).newer == NEW
    assert db.execute("SELECT body, fence FROM reports WHERE id = 7").fetchall() == [("d", NEW)]


def test_missing_row_raises_missing_row(driver, db):
    with pytest.raises(MissingRow, match="there is no row in reports where id = 9; insert it first") as caught:
        update(driver, "a", NOW, where={"id": 9}, paramstyle=driver.paramstyle)
    assert isinstance(caught.value, HandfastError)
    assert isinstance(caught.value, LookupError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert bodies(db) == {7: "empty", 8: "empty"}


def test_select_is_sent_only_if_the_update_matched_no_row(db):
    driver = Speaking(db, "qmark")
    update(driver, "a", NOW, paramstyle="qmark")
    text = (
        'UPDATE "reports" SET "body" = ?, "fence" = ? WHERE "reports"."id" = ?'
        ' AND ("reports"."fence" IS NULL OR "reports"."fence" <= ?)'
    )
    assert driver.log == [(text, ("a", NOW, 7, NOW))]
    driver.log.clear()
    refused(driver, "b", OLD, paramstyle="qmark")
    (_, ask) = driver.log
    assert ask == ('SELECT "reports"."fence" FROM "reports" WHERE "reports"."id" = ?', (7,))


@pytest.mark.parametrize(
    ("style", "marks"),
    [
        ("qmark", ["?"] * 4),
        ("format", ["%s"] * 4),
        ("numeric", [":1", ":2", ":3", ":4"]),
        ("named", [":p1", ":p2", ":p3", ":p4"]),
        ("pyformat", ["%(p1)s", "%(p2)s", "%(p3)s", "%(p4)s"]),
    ],
)
def test_statements_use_the_paramstyle_of_the_driver(db, style, marks):
    driver = Speaking(db, style)
    update(driver, "a", NOW, paramstyle=style)
    ((text, parameters),) = driver.log
    assert re.findall(r"\?|%s|%\(p\d\)s|:p?\d", text) == marks
    assert list(parameters.values() if isinstance(parameters, dict) else parameters) == ["a", NOW, 7, NOW]


def test_update_neither_commits_nor_rolls_back(db):
    update(db, "a", OLD)
    assert db.in_transaction
    update(db, "b", NEW)
    refused(db, "c", NOW)
    assert db.in_transaction
    db.rollback()
    assert bodies(db)[7] == "empty"
    with pytest.raises(StaleFence), db:
        update(db, "a", NEW)
        db.execute("UPDATE reports SET body = 'b' WHERE id = 8")
        update(db, "c", OLD)
    assert bodies(db) == {7: "empty", 8: "empty"}, "the whole transaction was rolled back"


def test_values_may_be_none_many_or_unusual(db):
    update_if_newer(db, "reports", {}, NOW, where={"id": 7})
    assert db.execute("SELECT body, fence FROM reports WHERE id = 7").fetchone() == ("empty", NOW)
    refused(db, "a", OLD)
    update_if_newer(
        db, "main.reports", {"body": None, "order": "%s ? :1 'x' \"y\""}, NOW, where={"id": 7, "body": "empty"}
    )
    assert db.execute("SELECT * FROM reports WHERE id = 7").fetchone() == (7, None, "%s ? :1 'x' \"y\"", NOW)
    update_if_newer(db, "reports", {"body": "b"}, NEW, where={"id": 7, "body": None})
    assert bodies(db)[7] == "b"


def test_fence_column_may_have_another_name(db):
    db.execute("ALTER TABLE reports ADD COLUMN höchste BIGINT")
    update(db, "a", NOW, column="höchste")
    assert refused(db, "b", OLD, column="höchste").newer == NOW
    assert db.execute("SELECT höchste, fence FROM reports WHERE id = 7").fetchone() == (NOW, None)
    update(db, "c", OLD)


def test_names_may_be_quoted_with_backticks(db):
    driver = Speaking(db, "qmark")
    update_if_newer(driver, "reports", {"order": "a"}, NOW, where={"id": 7}, quote="`", paramstyle="qmark")
    assert driver.log[0][0] == (
        "UPDATE `reports` SET `order` = ?, `fence` = ? WHERE `reports`.`id` = ?"
        " AND (`reports`.`fence` IS NULL OR `reports`.`fence` <= ?)"
    )


# --- connections and cursors


def test_given_cursor_is_used_and_stays_open(db):
    cursor = db.cursor()
    update(cursor, "a", NOW)
    refused(cursor, "b", OLD)
    assert cursor.execute("SELECT body FROM reports WHERE id = 7").fetchone() == ("a",)


def test_a_cursor_that_shows_what_it_wraps_is_used(db):
    """Django's does, as its `cursor`."""

    class Wrapper:
        def __init__(self, cursor):
            self.cursor = cursor

        def __getattr__(self, name):
            return getattr(self.cursor, name)

    update(Wrapper(db.cursor()), "a", NOW, paramstyle="qmark")
    refused(Wrapper(db.cursor()), "b", OLD, paramstyle="qmark")


def test_own_cursor_is_closed_at_the_end(db):
    made = []
    kind = type("Watched", (Speaking,), {"cursor": lambda self: made.append(SpeakingCursor(self)) or made[-1]})
    update(kind(db, "qmark"), "a", NOW, paramstyle="qmark")
    refused(kind(db, "qmark"), "b", OLD, paramstyle="qmark")
    assert len(made) == 2
    for cursor in made:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            cursor.fetchone()


@pytest.mark.parametrize(
    "rows",
    [
        sqlite3.Row,
        lambda cursor, row: {column[0]: value for column, value in zip(cursor.description, row, strict=True)},
        lambda cursor, row: namedtuple("R", [column[0] for column in cursor.description])(*row),  # noqa: PYI024 -- as such recipes do
        lambda _, row: row[0],
        lambda _, __: object(),
    ],
    ids=["Row", "dict", "namedtuple", "value", "object"],
)
def test_rows_may_be_mappings_or_sequences(db, rows):
    db.row_factory = rows
    update(db, "a", NOW)
    assert refused(db, "b", OLD).newer == NOW


class Connection(sqlite3.Connection):
    """A connection class of an application."""


def test_paramstyle_is_read_from_the_module_of_the_driver(monkeypatch):
    with contextlib.closing(sqlite3.connect(":memory:", factory=Connection)) as db:
        db.execute("CREATE TABLE reports (id, body, fence)")
        with pytest.raises(MissingRow):
            update(db, "a", NOW)
        with pytest.raises(MissingRow):
            update(db.cursor(), "a", NOW)

    # A driver says it in its first module, or in the one that is imported, whose classes come from others.
    for home, style in (("adriver", "format"), ("adriver.dbapi", "pyformat")):
        module = types.ModuleType(home)
        module.paramstyle = style
        monkeypatch.setitem(sys.modules, home, module)
        kind = type("Made", (Speaking,), {"__module__": f"{home}.inner.parts"})
        with contextlib.closing(sqlite3.connect(":memory:")) as db:
            db.execute("CREATE TABLE reports (id, body, fence)")
            with pytest.raises(MissingRow):
                update(kind(db, style), "a", NOW)


def test_wrapper_of_an_unknown_driver_needs_paramstyle(db):
    with pytest.raises(TypeError, match=r"the driver of .* is unknown; pass the driver's paramstyle="):
        update(Speaking(db, "qmark"), "a", NOW)
    with pytest.raises(
        ValueError,
        match="paramstyle must be one of qmark, format, numeric, numeric_dollar, named, pyformat, not 'percent'",
    ):
        update(db, "a", NOW, paramstyle="percent")


def test_driver_that_does_not_count_rows_is_refused(db):
    driver = Speaking(db, "qmark")
    kind = type("Blind", (SpeakingCursor,), {"rowcount": -1})
    with pytest.raises(ServerUnsupported, match="does not count the rows of an UPDATE"):
        update(kind(driver), "a", NOW, paramstyle="qmark")


async def test_asyncio_drivers_are_refused_before_anything_is_sent(db):
    class Asynchronous(Speaking):
        async def execute(self, *_):
            raise AssertionError

        async def close(self):
            raise AssertionError

        def cursor(self):
            return self

    class Awaited(Speaking):
        def cursor(self):
            return self

        def __await__(self):
            raise AssertionError

    for kind in (Asynchronous, Awaited):
        with pytest.raises(
            TypeError, match=r"belongs to an asyncio driver, not to DB-API 2\.0; write the statement yourself"
        ):
            update(kind(db, "qmark"), "a", NOW, paramstyle="qmark")


def test_refusal_that_the_select_does_not_explain_is_stale(db):
    """As in a transaction of MySQL: the UPDATE sees concurrent commits, the SELECT does not."""
    update(db, "a", NEW)

    for seen in (OLD, NOW, None):
        behind = type("Behind", (SpeakingCursor,), {"fetchall": lambda _, seen=seen: [(seen,)]})
        stale = refused(behind(Speaking(db, "qmark")), "b", NOW, paramstyle="qmark")
        assert stale.newer is None
        assert "was refused: the row changed concurrently, or the driver counts only changed rows" in str(stale)
    assert bodies(db)[7] == "a"


# --- invalid arguments


def test_invalid_fences_are_refused_before_anything_is_sent(db):
    driver = Speaking(db, "qmark")
    for fence, error in ((True, TypeError), (1.0, TypeError), ("5", TypeError), (-1, ValueError), (2**53, ValueError)):
        with pytest.raises(error, match="a fence must be "):
            update(driver, "a", fence, paramstyle="qmark")
    assert not driver.log


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "a b",
        'a"',
        "a`",
        "a'",
        "a;b",
        "a--",
        "1a",
        "a?",
        "a%s",
        ":a",
        "a\0",
        "a-b",
        "[a]",
        "a\n",
        'reports" --',
        ".",
    ],
)
def test_unsafe_names_are_refused_before_anything_is_sent(db, name):
    driver = Speaking(db, "qmark")
    options = {"paramstyle": "qmark", "where": {"id": 7}}
    for table, values, more in (
        (name, {"body": "a"}, options),
        (f"main.{name}", {"body": "a"}, options),
        ("reports", {name: "a"}, options),
        ("reports", {"body": "a"}, options | {"where": {name: 7}}),
        ("reports", {"body": "a"}, options | {"column": name}),
    ):
        with pytest.raises(
            ValueError, match=r"is not a name of letters, digits, _ and \$; write the statement yourself"
        ):
            update_if_newer(driver, table, values, NOW, **more)
    assert not driver.log


def test_invalid_where_and_values_are_refused_before_anything_is_sent(db):
    driver = Speaking(db, "qmark")
    for options, error, words in (
        ({"where": {}}, ValueError, "where must name the columns that select the row"),
        ({"where": [("id", 7)]}, TypeError, "where must be a mapping of columns"),
        ({"where": {"FENCE": 7}}, ValueError, '"fence" is the column of the fence; it may not be in where'),
        ({"where": {7: 7}}, TypeError, "the name of a table or column must be a str"),
        ({"quote": "'"}, ValueError, "quote must be a double quote or a backtick"),
        ({"column": None}, TypeError, "the name of a table or column must be a str"),
    ):
        with pytest.raises(error, match=words):
            update(driver, "a", NOW, paramstyle="qmark", **options)
    for values, error in (({"fence": 5}, ValueError), ([("body", "a")], TypeError), ("body", TypeError)):
        with pytest.raises(error, match="values"):
            update_if_newer(driver, "reports", values, NOW, where={"id": 7}, paramstyle="qmark")
    with pytest.raises(TypeError, match="a table must be a str"):
        update_if_newer(driver, None, {}, NOW, where={"id": 7}, paramstyle="qmark")
    assert not driver.log


def test_update_of_several_rows_raises(db):
    with (
        pytest.raises(ValueError, match="2 rows of reports where body = 'empty' were updated, and a fence guards one"),
        db,
    ):
        update(db, "a", NOW, where={"body": "empty"})
    assert bodies(db) == {7: "empty", 8: "empty"}


def test_unknown_column_raises(db):
    """SQLite reads an unknown name in double quotes as a string, unless it is qualified by its table."""
    for options in ({"where": {"idd": "idd"}}, {"column": "fenced"}):
        with pytest.raises(sqlite3.OperationalError, match="no such column"):
            update(db, "a", NOW, **options)
    assert bodies(db) == {7: "empty", 8: "empty"}


# --- statements of the page


def test_plain_sql_of_the_page_behaves_the_same():
    page = (Path(__file__).parents[3] / "docs/how-to/fence-a-write.md").read_text(encoding="utf-8")
    add, change, put, ask = re.search(r"```sql\n(.*?)```", page, re.DOTALL)[1].strip().removesuffix(";").split(";")
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE reports (id INTEGER PRIMARY KEY, body TEXT, views INTEGER DEFAULT 0)")
        db.execute("INSERT INTO reports (id) VALUES (7)")
        db.execute(add)

        def matched(statement, row, body, fence):
            return db.execute(statement, {"id": row, "body": body, "fence": fence}).rowcount

        for statement, row in ((change, 7), (put, 8)):
            assert [matched(statement, row, "a", NOW), matched(statement, row, "b", NOW)] == [1, 1]
            assert matched(statement, row, "c", OLD) == 0
            assert db.execute(ask, {"id": row}).fetchall() == [(NOW,)]
            assert matched(statement, row, "d", NEW) == 1
        assert db.execute("SELECT * FROM reports").fetchall() == [(7, "d", 3, NEW), (8, "d", 0, NEW)]
        assert matched(change, 9, "a", NOW) == 0
        assert db.execute(ask, {"id": 9}).fetchall() == []


# --- model, and paused writers


@given(
    writes=st.lists(
        st.tuples(st.sampled_from([7, 8, 9]), st.integers(0, 6) | st.sampled_from([OLD, NOW, NEW, 2**53 - 1]))
    )
)
def test_rows_behave_as_their_model(writes):
    rows = {7: (None, -1), 8: (None, -1)}
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE reports (id INTEGER PRIMARY KEY, body TEXT, fence BIGINT)")
        db.execute("INSERT INTO reports (id) VALUES (7), (8)")
        for number, (row, fence) in enumerate(writes):
            if row not in rows:
                with pytest.raises(MissingRow):
                    update(db, f"{number}", fence, where={"id": row})
            elif fence < rows[row][1]:
                assert refused(db, f"{number}", fence, where={"id": row}).newer == rows[row][1]
            else:
                update(db, f"{number}", fence, where={"id": row})
                rows[row] = (f"{number}", fence)
        found = db.execute("SELECT id, body, coalesce(fence, -1) FROM reports")
        assert {row: (body, fence) for row, body, fence in found} == rows
