"""Validation of callers' arguments: names, durations, counts and scores. Each is checked only here.

Every function returns the checked value in the form that the engine uses. It raises TypeError for a value of the wrong
type and ValueError for a value out of range; the message names the argument, the bounds and the value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from enum import Enum
from typing import TypeVar, get_args
from urllib.parse import quote
from uuid import UUID

from handfast.arguments import CancelEvent, Duration, KeyPart

__all__ = [
    "MAX_DURATION_S",
    "MAX_FENCE",
    "MAX_ITEMS",
    "MAX_LABEL_BYTES",
    "MAX_NAME_BYTES",
    "check_cancel",
    "check_choice",
    "check_int",
    "check_limit",
    "check_reason",
    "check_score",
    "check_value",
    "encode_name",
    "fingerprint_bytes",
    "key_parts",
    "lease_times",
    "milliseconds",
    "parameter_names",
    "replica_milliseconds",
    "reply_seconds",
    "retry_seconds",
    "utf8",
    "wait_seconds",
]

MAX_DURATION_S = 366 * 24 * 3600
"""Upper bound of every duration: a leap year."""

MAX_ITEMS = 10_000
"""Upper bound of ``limit`` where it bounds the items of one reply."""

MAX_FENCE = 2**53
"""Upper bound of a fence: the scripts' numbers are doubles, which hold every whole number up to this one."""

MAX_NAME_BYTES = 16 * 1024
"""Upper bound of a name, in bytes of UTF-8."""

MAX_REASON_BYTES = 1_000
"""Upper bound of the reason of a ``force_release``, in bytes of UTF-8: the server remembers it with the name."""

MAX_LABEL_BYTES = 200
"""Upper bound of a label, in bytes of UTF-8: every waiter and every holder has it in its record."""

MAX_VALUE_BYTES = 1024
"""Upper bound of a value, in bytes of UTF-8: the record of its holder or waiter has it, and each status reads it."""

MAX_HEAD_START_S = 86_400
"""Upper bound of a head start, in seconds: a day. No one waits longer for later requests than the largest that is in use."""

MIN_REPLICA_MS = 200
"""Lower bound of ``replica_timeout``: a server that waits for 0.1 s answers after 0.1 to 0.2 s."""

_SECONDS = "seconds (an int or a float) or a timedelta"

C = TypeVar("C", bound=str)


def milliseconds(value: Duration, what: str) -> int:
    """Convert a duration to whole milliseconds, rounded up, so that a lease is never shorter than requested.

    The bounds are 0.001 s and 366 days.
    """
    seconds = _number_of_seconds(value, what)
    if isinstance(seconds, float) and not math.isfinite(seconds):
        raise ValueError(f"{what} must be finite, not {value!r}")
    if seconds > MAX_DURATION_S:
        raise ValueError(f"{what} must be at most 366 days, not {value!r}")
    if seconds < 0.001:
        raise ValueError(f"{what} must be at least a millisecond (0.001), not {value!r}")
    # Rounded first: 0.003 * 1000 may be slightly above 3, and ceil() would make 4 of it.
    return math.ceil(round(seconds * 1000, 6))


def lease_times(ttl: Duration, max_hold: Duration | None) -> tuple[int, float]:
    """Convert the ttl of a lease to milliseconds, and ``max_hold`` to seconds.

    The ttl is no longer than ``max_hold``.
    """
    ttl_ms = milliseconds(ttl, "ttl")
    if max_hold is None:
        return ttl_ms, math.inf
    longest_ms = milliseconds(max_hold, "max_hold")
    return min(ttl_ms, longest_ms), longest_ms / 1000


def reply_seconds(timeout: Duration | None) -> float | None:
    """Convert for how long a server is waited for to seconds; None where the caller does not say."""
    return None if timeout is None else milliseconds(timeout, "timeout") / 1000


def retry_seconds(retry_for: Duration) -> float:
    """Convert for how long a call is retried to seconds: 0, or as `milliseconds` has it."""
    if retry_for == timedelta(0) or (retry_for == 0 and not isinstance(retry_for, bool)):
        return 0.0
    return milliseconds(retry_for, "retry_for") / 1000


def replica_milliseconds(timeout: Duration, ttl_ms: int, reply_s: float) -> int:
    """Convert for how long replicas are waited for to milliseconds.

    The result is 200 or more, and at most a third of the ttl and half of ``reply_s``.
    """
    ms = milliseconds(timeout, "replica_timeout")
    if ms < MIN_REPLICA_MS:
        raise ValueError(
            f"replica_timeout must be at least 0.2 s, since servers look for their replicas ten times a second, not {timeout!r}"
        )
    if ms * 3 > ttl_ms:
        raise ValueError(
            f"replica_timeout must be at most a third of ttl, {ttl_ms / 3000:g} s, so that a renewal that fails "
            f"can be tried again, not {timeout!r}"
        )
    if ms > reply_s * 500:
        raise ValueError(
            f"replica_timeout must be at most half of the client's socket_timeout, {reply_s / 2:g} s, so that a server "
            f"that waits is not taken for one that is silent, not {timeout!r}"
        )
    return ms


def wait_seconds(timeout: Duration | None) -> float | None:
    """Convert how long a caller waits to seconds: None without a limit, 0 not at all.

    Nothing to wait for lasts longer than 366 days, so a longer timeout is no limit.
    """
    if timeout is None:
        return None
    seconds = _seconds(timeout, "timeout", "seconds (an int or a float), a timedelta or None")
    return None if seconds > MAX_DURATION_S else seconds


def grace_milliseconds(grace: Duration) -> int:
    """Convert a grace to milliseconds: 0, or as `milliseconds` has it."""
    seconds = _number_of_seconds(grace, "grace")
    return 0 if seconds == 0 else milliseconds(grace, "grace")


def head_start_microseconds(head_start: Duration) -> int:
    """Convert a head start to whole microseconds: 0 to a day."""
    seconds = _number_of_seconds(head_start, "head_start")
    if not 0 <= seconds <= MAX_HEAD_START_S:
        raise ValueError(f"head_start must be from 0 to 86,400 s, a day, not {head_start!r}")
    return round(seconds * 1e6)


def pause_seconds(seconds: Duration) -> float:
    """Convert how long a pause is asked for to seconds: 0 for a pause that is over, and no upper bound."""
    if _seconds(seconds, "a pause") == 0.0:
        return 0.0
    try:
        return float(_number_of_seconds(seconds, "a pause", _SECONDS))
    except OverflowError:  # an int may be larger than any float
        return math.inf


def _seconds(value: Duration, what: str, kinds: str = _SECONDS) -> float:
    """Convert to seconds from 0 on."""
    seconds = _number_of_seconds(value, what, kinds)
    if isinstance(seconds, float) and math.isnan(seconds):
        raise ValueError(f"{what} must be a number of seconds, not nan")
    if seconds > MAX_DURATION_S:
        return math.inf  # an int may be larger than any float
    return float(seconds) if seconds > 0 else 0.0


def _number_of_seconds(value: Duration, what: str, kinds: str = _SECONDS) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"{what} must be {kinds}, not {value!r}")
    return seconds


def encode_name(name: str, what: str, *, safe: str = "") -> str:
    """Percent-encode every byte of a name except letters, digits, ``_.-~`` and those in ``safe``.

    The result is ASCII without braces, blanks and control characters, so a name can't break the hash tag of the keys.
    Different names stay different; ``urllib.parse.unquote`` restores the name.
    """
    return quote(utf8(name, what), safe=safe)


def utf8(text: str, what: str, most: int = MAX_NAME_BYTES) -> bytes:
    """Encode a name: not empty, and of at most so many bytes of UTF-8."""
    if not isinstance(text, str):
        raise TypeError(f"{what} must be a str, not {text!r}")
    if not text:
        raise ValueError(f"{what} must not be empty")
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} must be valid Unicode, not {text!r}") from None
    if len(data) > most:
        raise ValueError(f"{what} must be at most {most} bytes of UTF-8, not {len(data)}")
    return data


def check_limit(limit: int) -> int:
    """Check how many items a reply may have: 1 to 10,000."""
    return check_int(limit, "limit", MAX_ITEMS)


def check_reason(reason: str) -> str:
    """Check a reason: 1 to 1,000 bytes of UTF-8."""
    utf8(reason, "reason", MAX_REASON_BYTES)
    return reason


def check_value(value: str) -> str:
    """Check a value for others to see: at most 1 KiB of UTF-8; the empty text is none."""
    if value != "":
        utf8(value, "value", MAX_VALUE_BYTES)
    return value


def check_int(value: int, what: str, most: int, *, least: int = 1) -> int:
    """Check a count: ``least`` to ``most``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} must be an int, not {value!r}")
    if not least <= value <= most:
        raise ValueError(f"{what} must be from {least} to {most:,}, not {value!r}")
    return value


def key_parts(parts: Sequence[KeyPart], need: str = "a key must have") -> tuple[str, ...]:
    """Return the texts of the parts of a key: at least one, each of 1 byte to 16 KiB of UTF-8."""
    if not parts:
        raise TypeError(f"{need} at least one part")
    return tuple(map(_key_part, parts))


def _key_part(part: object) -> str:
    value = part.value if isinstance(part, Enum) else part
    if isinstance(value, str):
        text = value
    elif isinstance(value, bool | UUID):
        text = str(value)
    elif isinstance(value, int):
        text = str(int(value))
    elif isinstance(value, date):
        text = value.isoformat()
    else:
        raise TypeError(
            f"a part of a key must be a str, an int, a bool, a UUID, a date, or an Enum of one of them, not {part!r}"
        )
    utf8(text, "a part of a key")
    return text


def parameter_names(by: str | Iterable[str] | None) -> tuple[str, ...]:
    """Check names of parameters: one, several, or none."""
    if by is None:
        return ()
    names = (by,) if isinstance(by, str) or not isinstance(by, Iterable) else tuple(by)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"by must be the name of a parameter, or several names, not {by!r}")
    return names


def fingerprint_bytes(fingerprint: str | bytes | None) -> bytes:
    """Convert a fingerprint to bytes: none where the caller has none, and an empty one is no fingerprint."""
    if fingerprint is None:
        return b""
    if not isinstance(fingerprint, str | bytes):
        raise TypeError(f"fingerprint must be a str, bytes or None, not {fingerprint!r}")
    if not fingerprint:
        raise ValueError("fingerprint must not be empty")
    return fingerprint.encode(errors="surrogatepass") if isinstance(fingerprint, str) else fingerprint


def check_score(value: float, what: str) -> float:
    """Check a score: finite, and exactly a double, which is how the server stores it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"the score of {what!r} must be a number, not {value!r}")
    try:
        score = float(value)
    except OverflowError:
        score = math.inf  # an int above every double
    if isinstance(value, int) and score != value:
        raise ValueError(f"the score of {what!r} is {value!r}, which a double cannot hold: use a coarser unit")
    if not math.isfinite(score):
        raise ValueError(f"the score of {what!r} must be finite, not {value!r}")
    return score


def check_choice(value: C, what: str, choices: object) -> C:
    """Check one of the texts of a `Literal`."""
    texts = get_args(choices)
    if value not in texts:
        raise ValueError(f"{what} must be {' or '.join(map(repr, texts))}, not {value!r}")
    return value


def check_cancel(cancel: CancelEvent) -> None:
    """Check the event that ends a wait: it can be asked whether it is set."""
    if isinstance(cancel, type) or not callable(getattr(cancel, "is_set", None)):
        raise TypeError(f"cancel must be an event, such as a threading.Event, or None, not {cancel!r}")
