"""Questions whose answer may need the answer to the same question: a variable can be made of itself."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

__all__ = ["Asking"]

T = TypeVar("T")

FARTHEST = 25
"""How many questions may wait for one another. Who asks in the order of a script's lines never comes near."""

MOST = 1000
"""How many are asked for the sake of one. Variables that are all given to one another have many ways around."""


class Asking:
    """Remembers answers, and ends circles."""

    def __init__(self) -> None:
        self._answers: dict[Hashable, Any] = {}
        self._waiting: list[Hashable] = []
        self._is_cut = False
        self._asked = 0

    def ask(self, question: Hashable, find: Callable[[], T], otherwise: T) -> T:
        """The answer; ``otherwise`` within a circle, and where it takes too long.

        An answer that a circle has cut short is not remembered, since whoever asks elsewhere gets a longer one.
        """
        if question in self._answers:
            known: T = self._answers[question]
            return known
        self._asked = self._asked + 1 if self._waiting else 0
        if len(self._waiting) == FARTHEST or self._asked > MOST:
            return otherwise
        if question in self._waiting:
            self._is_cut = True
            return otherwise
        was_cut, self._is_cut = self._is_cut, False
        self._waiting.append(question)
        try:
            answer = find()
        finally:
            self._waiting.pop()
        if not self._waiting:
            self._is_cut = False  # the circle has been walked to its end
        if not self._is_cut:
            self._answers[question] = answer
        self._is_cut |= was_cut
        return answer
