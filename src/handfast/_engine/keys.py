"""Key and channel names: the one place where they are made.

The state of one name lives in four keys with one hash tag, ``{<namespace>:<kind>:<name>}:<part>``. Namespace
and name are percent-encoded, the namespace with its colons, so that two different triples never meet in one key
and nothing can end the tag early. The parts are called what the scripts' headers call them.
"""

from __future__ import annotations

from handfast._engine.validate import encode_name

__all__ = ["KeySet", "control_channel", "inbox_channel"]


class KeySet:
    """Where the state of one name lives."""

    __slots__ = ("name", "tag")

    def __init__(self, namespace: str, kind: str, name: str) -> None:
        self.name = name
        self.tag = f"{{{encode_name(namespace, 'namespace')}:{kind}:{encode_name(name, 'name', safe=':/@')}}}"

    def key(self, part: str) -> str:
        """The key of one part of the state, such as ``holders``."""
        return f"{self.tag}:{part}"


def inbox_channel(namespace: str, client_id: str, number: int) -> str:
    """Where one session hears of the grants that its waiter is given."""
    return f"{encode_name(namespace, 'namespace')}:inbox:{client_id}:{number}"


def control_channel(namespace: str, client_id: str) -> str:
    """Where one client hears that a lease of its was taken away."""
    return f"{encode_name(namespace, 'namespace')}:home:{client_id}"
