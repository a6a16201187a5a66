"""Key and channel names: the one place where they are made.

The state of one name lives in two keys with one hash tag, ``{<namespace>:<kind>:<name>}:<part>``. Namespace
and name are percent-encoded, the namespace with its colons, so that two different triples never meet in one key
and nothing can end the tag early. The parts are called what the scripts' headers call them.
"""

from __future__ import annotations

from handfast._engine.validate import encode_name

__all__ = ["KeySet", "control_channel", "inbox_channel"]


class KeySet:
    """The keys of one name."""

    __slots__ = ("_owner", "name", "tag")

    def __init__(self, namespace: str, kind: str, name: str) -> None:
        self._owner = namespace, kind
        self.name = name
        self.tag = f"{{{encode_name(namespace, 'namespace')}:{kind}:{encode_name(name, 'name', safe=':/@')}}}"

    def renamed(self, name: str) -> KeySet:
        """Return the keys of another name of the same kind."""
        return KeySet(*self._owner, name)

    def key(self, part: str) -> str:
        """Return the key of one part of the state, such as ``tokens``."""
        return f"{self.tag}:{part}"


def inbox_channel(namespace: str, client_id: str, number: int) -> str:
    """The channel on which scripts publish the grants for the waiters of one connection, the client's ``number``-th.

    Each connection has another one. So a queue entry that was made through an earlier connection, as an older state of the
    server may have it, has no subscriber and is skipped.
    """
    return f"{encode_name(namespace, 'namespace')}:inbox:{client_id}:{number}"


def control_channel(namespace: str, client_id: str) -> str:
    """The channel on which scripts publish that a lease of one client was taken away."""
    return f"{encode_name(namespace, 'namespace')}:control:{client_id}"
