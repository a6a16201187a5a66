"""The callbacks of a lost lease, which its holder and the renewal thread may call at the same time."""

from __future__ import annotations

from types import SimpleNamespace

from handfast._drivers.losses import run_lost_callbacks


class Taken(list):
    """Callbacks of which another thread takes the last one, after this thread has seen it."""

    def __bool__(self):
        return True


def test_a_callback_that_another_thread_has_taken_is_no_failure(caplog):
    called = []
    lease = SimpleNamespace(callbacks=Taken([lambda: called.append(1)]), request=SimpleNamespace(name="a"))

    run_lost_callbacks(lease)

    assert called == [1]
    assert not caplog.records
