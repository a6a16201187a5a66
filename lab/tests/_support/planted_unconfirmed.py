"""A mistake for the processes that import this module: a grant that was handed over is never confirmed."""

from __future__ import annotations

from handfast._drivers.sync.session import Session

Session._confirm = lambda *_: None
