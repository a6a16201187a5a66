"""The look of a name, by its kind: the only place for every view, from ``handfast ls`` to the page.

A face makes `Facts` of a status; `face` has the methods of every face, `leases` those that kinds with leases share. Each kind
listed kind has a module of the kind's name here, whose ``FACE`` is its face.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, get_args

from handfast._watch.faces.face import Face
from handfast._watch.faces.unknown import UnknownFace
from handfast._watch.facts import Seen, Unreadable
from handfast.arguments import Kind

__all__ = ["FACES", "face_of"]

FACES: Mapping[str, Face[Any]] = {kind: import_module(f"{__name__}.{kind}").FACE for kind in get_args(Kind)}
"""By the word in the keys."""

UNKNOWN = UnknownFace()


def face_of(found: Seen[Any]) -> Face[Any]:
    """Return the face of a name."""
    return UNKNOWN if isinstance(found.status, Unreadable) else FACES[found.kind]
