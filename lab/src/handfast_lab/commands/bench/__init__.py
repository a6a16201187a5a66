"""``handfast bench``: measurements on this machine. `handfast_lab.bench` describes the method and its doubts.

`benches` has the commands, `frame` what they share.
"""

from __future__ import annotations

from handfast_lab.commands.bench.benches import command

__all__ = ["command"]
