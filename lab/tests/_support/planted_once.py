"""Faulty users of `once` for the trial. They are pickled for child processes, which import this module."""

from __future__ import annotations

from handfast_lab.chaos.once_users import OnceUser
from handfast_lab.rivals.once.contender import RunLost

__all__ = ["Hasty", "Stubborn"]


class Hasty(OnceUser):
    """Runs without asking whether another one does."""

    def ask(self, _key, seconds, *_callers):
        self.report("answered", [self.work(seconds)()])


class Stubborn(OnceUser):
    """Takes its own result for that of the key, also where it was refused."""

    def ask(self, key, seconds, *_callers):
        mine = []

        def work():
            mine.append(self.work(seconds)())
            return mine[-1]

        try:
            self.report("answered", [self.runner.run(key, work)])
        except RunLost:
            self.report("answered", mine)
