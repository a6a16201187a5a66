"""Periods of the calendar and exact amounts: 200 periods are found by another way, from the clocks of zoneinfo alone."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, localcontext
from zoneinfo import ZoneInfo

import pytest

from handfast._amounts import amount_text
from handfast._engine.calendar import END_US, LAST_BEGIN, PERIODS, Calendar, read_budget
from handfast._engine.moments import microseconds, moment
from handfast._engine.money import MAX_MILLIONTHS, as_decimal, millionths

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Sao_Paulo",  # set its clocks forward at midnight until 2018: such a day had no midnight
    "America/Havana",  # sets them back at one: midnight comes twice
    "Asia/Beirut",
    "Australia/Lord_Howe",  # half an hour
    "Asia/Kathmandu",
    "Pacific/Apia",  # left out a day in 2011
)

MINUTE = timedelta(minutes=1)


def begins_a_period(period, begins, day):
    """Return whether a period begins on this day."""
    if period == "day":
        return True
    if period == "week":
        return day.isoweekday() == begins
    if period == "year":
        return (day.month, day.day) == (begins, 1)
    is_first = day.day == begins or (day.day < begins and (day + timedelta(days=1)).day == 1)
    return is_first and (period == "month" or day.month in (1, 4, 7, 10))


def begins_at(zone, day):
    """Return the first minute that shows this day on the wall: found minute by minute from the evening before."""
    at = datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(hours=15)
    while at.astimezone(zone).date() < day:
        at += MINUTE
    return at


def shown_days(zone, first, step):
    """Yield the days that a wall shows, from this one on."""
    day = first
    while True:
        yield day
        day += timedelta(days=step)


def expected(period, begins, zone, at):
    """Return begin and end of the period of a moment."""
    today = at.astimezone(zone).date()
    before = next(
        found
        for day in shown_days(zone, today, -1)
        if begins_a_period(period, begins, day) and (found := begins_at(zone, day)) <= at
    )
    after = next(
        found
        for day in shown_days(zone, today - timedelta(days=1), 1)
        if begins_a_period(period, begins, day) and (found := begins_at(zone, day)) > at
    )
    return before, after


def cases():
    chance = random.Random(7)
    for number in range(200):
        period = PERIODS[number % 5]
        begins = chance.randint(1, LAST_BEGIN[period] or 1)
        zone = ZONES[number % len(ZONES)]
        at = datetime(2010, 1, 1, tzinfo=UTC) + timedelta(seconds=chance.randrange(17 * 365 * 86_400))
        if number % 4 == 0:  # near a midnight
            local = at.astimezone(ZoneInfo(zone)).replace(hour=0, minute=0, second=0)
            at = (local + timedelta(seconds=chance.choice([-3601, -1, 0, 1, 1800, 3600]))).astimezone(UTC)
        yield pytest.param(period, begins, zone, at, id=f"{number} {period} {begins} {zone} {at:%Y-%m-%d %H:%M:%S}")


@pytest.mark.parametrize(("period", "begins", "zone", "at"), [*cases()])
def test_a_period_is_the_one_on_the_wall(period, begins, zone, at):
    begin_us, end_us = Calendar(period, zone, begins).at(microseconds(at))
    assert (moment(begin_us), moment(end_us)) == expected(period, begins, ZoneInfo(zone), at)


@pytest.mark.parametrize("zone", ZONES)
def test_periods_follow_each_other_without_a_gap(zone):
    for period, begins in (("day", 1), ("week", 3), ("month", 31), ("month", 30), ("quarter", 29), ("year", 4)):
        calendar, at_us = Calendar(period, zone, begins), microseconds(datetime(2011, 12, 1, tzinfo=UTC))
        for _ in range(60):
            begin_us, end_us = calendar.at(at_us)
            assert begin_us <= at_us < end_us
            assert calendar.at(end_us - 1) == (begin_us, end_us)
            at_us = end_us


def test_a_month_that_begins_on_the_31st_begins_on_the_last_day_of_a_shorter_one():
    calendar = Calendar("month", "UTC", 31)
    begins = [moment(calendar.at(microseconds(datetime(2028, month, 15, tzinfo=UTC)))[0]) for month in range(1, 7)]
    assert [(one.month, one.day) for one in begins] == [(12, 31), (1, 31), (2, 29), (3, 31), (4, 30), (5, 31)]


def test_a_month_is_no_30_days_and_resets_once():
    """Thirty days in place of a month reset a budget twice in most months (bifrost#2325)."""
    calendar = Calendar("month", "UTC", 1)
    days = [microseconds(datetime(2027, 1, 1, tzinfo=UTC) + timedelta(days=day)) for day in range(365)]
    assert len({calendar.at(day) for day in days}) == 12


def test_a_total_never_ends():
    assert Calendar("total", "UTC", 1).at(microseconds(datetime(2026, 1, 1, tzinfo=UTC))) == (0, END_US)
    assert moment(END_US).date() > date(2250, 1, 1)


@pytest.mark.parametrize("period", PERIODS)
def test_a_definition_is_read_as_it_was_written(period):
    calendar = Calendar.checked(period, "Europe/Berlin", LAST_BEGIN[period] or 1)
    assert Calendar.read(str(calendar)) == calendar


@pytest.mark.parametrize(
    "text", ["", "month UTC", "month UTC x", "fortnight UTC 1", "month Mars/Olympus 1", "month UTC 40"]
)
def test_what_is_no_definition_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        Calendar.read(text)


@pytest.mark.parametrize(
    ("period", "zone", "begins", "error", "said"),
    [
        ("month", "Mars/Olympus", 1, ValueError, "'Mars/Olympus' is no time zone that this machine knows"),
        ("month", "../etc/passwd", 1, ValueError, "is no time zone that this machine knows"),
        ("month", None, 1, TypeError, "zone must be the name of a time zone"),
        ("month", "UTC", 32, ValueError, "begins must be from 1 to 31 for a month, not 32"),
        ("week", "UTC", 0, ValueError, "begins must be from 1 to 7 for a week, not 0"),
        ("year", "UTC", 13, ValueError, "begins must be from 1 to 12 for a year, not 13"),
        ("day", "UTC", 2, ValueError, "a day has no begins, not 2"),
        ("month", "UTC", True, TypeError, "begins must be an int, not True"),
        ("month", "UTC", "15", TypeError, "begins must be an int, not '15'"),
    ],
)
def test_what_makes_no_periods_is_refused(period, zone, begins, error, said):
    with pytest.raises(error, match=said):
        Calendar.checked(period, zone, begins)


@pytest.mark.parametrize(
    ("budget", "found"),
    [
        ("100.00/month", ("100.00", "month")),
        (" 5 per Week ", ("5", "week")),
        ("5 total", ("5", "total")),
        ((Decimal("1.5"), "day"), (Decimal("1.5"), "day")),
    ],
)
def test_a_budget_is_read(budget, found):
    assert read_budget(budget) == found


@pytest.mark.parametrize("budget", ["", "100", "100/fortnight", "-5/month", "1e3/day", "month/100"])
def test_what_is_no_budget_is_refused(budget):
    with pytest.raises(ValueError, match=r"is no budget; write '100\.00/month'"):
        read_budget(budget)


@pytest.mark.parametrize("budget", [100, None, 1.5, (1, "fortnight"), ("1", "day", "UTC")])
def test_what_cannot_be_a_budget_is_refused(budget):
    with pytest.raises(TypeError, match=r"must be a text such as '100\.00/month', or a limit and a period"):
        read_budget(budget)


# --- amounts


def test_the_context_of_a_program_changes_no_amount():
    with localcontext() as context:
        context.prec = 3
        assert millionths("1234567.123456", "amount") == 1_234_567_123_456
        assert str(as_decimal(1_234_567_123_456)) == "1234567.123456"


@pytest.mark.parametrize(
    ("amount", "number"),
    [
        ("0.0000001", 1),
        ("0.0000010", 1),
        ("1.0000011", 1_000_002),
        ("1E-999", 1),
        ("4503599627.370496", MAX_MILLIONTHS),
    ],
)
def test_a_price_is_rounded_up(amount, number):
    assert millionths(amount, "amount", rounds_up=True) == number


@pytest.mark.parametrize(
    ("amount", "number"),
    [
        ("0.42", 420_000),
        (3, 3_000_000),
        (Decimal("1e2"), 100_000_000),
        ("0.000001", 1),
        (" 7 ", 7_000_000),
        (0, 0),
        ("-0", 0),
        ("4503599627.370496", MAX_MILLIONTHS),
    ],
)
def test_an_amount_is_exact(amount, number):
    assert millionths(amount, "amount") == number
    assert as_decimal(number) == Decimal(str(amount).strip())


@pytest.mark.parametrize("amount", [0.1, True, None, b"1", [1]])
def test_what_is_no_exact_number_is_refused(amount):
    with pytest.raises(TypeError, match=r"amount must be a Decimal, a text such as '0\.42' or an int"):
        millionths(amount, "amount")


def test_a_float_is_refused_with_the_reason():
    with pytest.raises(TypeError, match=r"not 0\.1: a float is not exact"):
        millionths(0.1, "amount")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("amount", "said"),
    [
        ("NaN", "amount must be from 0 to 4503599627.370496, not 'NaN'"),
        ("sNaN", "amount must be from 0"),
        (Decimal("Infinity"), "amount must be from 0"),
        ("-0.01", "amount must be from 0"),
        (-1, "amount must be from 0"),
        ("4503599627.370497", "amount must be from 0"),
        ("1e400", "amount must be from 0"),
        ("0.0000001", "amount has at most 6 decimals"),
        ("0.42 EUR", "amount must be a number such as '0.42'"),
        ("1_000", "amount must be a number such as '0.42'"),
        ("٣", "amount must be a number such as '0.42'"),
        ("", "amount must be a number such as '0.42'"),
    ],
)
def test_a_number_out_of_range_is_refused(amount, said):
    with pytest.raises(ValueError, match=said):
        millionths(amount, "amount")


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("1250", "1,250"),
        ("37.5", "37.50"),
        ("0.000125", "0.000125"),
        ("0", "0"),
        ("1E+3", "1,000"),
        ("1234.56", "1,234.56"),
    ],
)
def test_an_amount_is_written_for_people(amount, text):
    assert amount_text(Decimal(amount)) == text
