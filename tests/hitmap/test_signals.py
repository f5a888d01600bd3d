"""Signals end a command wherever they strike."""

from __future__ import annotations

import os
import signal

import pytest

from hitmap.signals import stopped_by_signals


@pytest.mark.timeout(30)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_strikes_inside_wait_ends_it(number: signal.Signals) -> None:
    """Event.wait holds the lock of the event for a moment; a handler on the same thread must not ask for it."""
    before = signal.getsignal(number)
    with stopped_by_signals() as stopping:
        with stopping._cond:  # where wait is when it is struck
            os.kill(os.getpid(), number)
        assert stopping.wait(10)
        os.kill(os.getpid(), number)  # a second one changes nothing
    assert signal.getsignal(number) is before
