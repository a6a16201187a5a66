"""What a name looks like, by its kind: the one place of every view, from ``handfast ls`` to the page.

A face makes `Facts` of a status; `face` has what each face says, `leases` what kinds with leases have in common. A new kind
gets a module here and a line in `FACES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handfast._watch.faces.debounce import DebounceFace
from handfast._watch.faces.election import ElectionFace
from handfast._watch.faces.face import Face
from handfast._watch.faces.group import GroupFace
from handfast._watch.faces.latch import LatchFace
from handfast._watch.faces.limiter import LimiterFace
from handfast._watch.faces.lock import LockFace
from handfast._watch.faces.once import OnceFace
from handfast._watch.faces.partition import PartitionFace
from handfast._watch.faces.rwlock import RWLockFace
from handfast._watch.faces.semaphore import SemaphoreFace
from handfast._watch.faces.unknown import UnknownFace
from handfast._watch.facts import Seen, Unreadable

__all__ = ["FACES", "face_of"]

FACES: Mapping[str, Face[Any]] = {
    "lock": LockFace(),
    "semaphore": SemaphoreFace(),
    "rwlock": RWLockFace(),
    "election": ElectionFace(),
    "group": GroupFace(),
    "partition": PartitionFace(),
    "once": OnceFace(),
    "limiter": LimiterFace(),
    "debounce": DebounceFace(),
    "latch": LatchFace(),
}
"""By the word in the keys."""

UNKNOWN = UnknownFace()


def face_of(found: Seen[Any]) -> Face[Any]:
    """Return the face of a name."""
    return UNKNOWN if isinstance(found.status, Unreadable) else FACES[found.kind]
