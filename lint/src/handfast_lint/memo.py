"""Memoized recursive questions that may depend on themselves: a variable can be assigned from itself."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

__all__ = ["Memo"]

T = TypeVar("T")

MAX_DEPTH = 25
"""How deep questions may nest. Questions in the order of a script's lines stay far below."""

MAX_QUESTIONS = 1000
"""How many questions one question may cause. Variables assigned to one another have many cycles."""


class Memo:
    """Stores answers and ends cycles."""

    def __init__(self) -> None:
        self._answers: dict[Hashable, Any] = {}
        self._waiting: list[Hashable] = []
        self._is_cut = False
        self._asked = 0

    def get(self, question: Hashable, find: Callable[[], T], otherwise: T) -> T:
        """Return the answer to a question.

        An answer that a cycle has cut short is not stored, because the same question gets a longer answer elsewhere.

        Args:
            question: The key of the answer.
            find: Computes the answer.
            otherwise: The answer within a cycle, and beyond the limits.

        """
        if question in self._answers:
            known: T = self._answers[question]
            return known
        self._asked = self._asked + 1 if self._waiting else 0
        if len(self._waiting) == MAX_DEPTH or self._asked > MAX_QUESTIONS:
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
            self._is_cut = False  # the cycle is complete
        if not self._is_cut:
            self._answers[question] = answer
        self._is_cut |= was_cut
        return answer
