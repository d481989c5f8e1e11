"""Signals while something of ours runs: an exception inside, and the same signal again behind it."""

import os
import signal

import pytest

from vllm_advisor.launch import borrowed_signals


@pytest.fixture
def heard():
    """SIGHUP under the test's own handler; the numbers that came."""
    numbers = []
    former = signal.signal(signal.SIGHUP, lambda number, _: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGHUP, former)


def test_a_signal_ends_the_block_and_comes_again(heard):
    """The rest of the block is left out, and whoever had the handler hears of it."""
    reached = []
    with borrowed_signals():
        os.kill(os.getpid(), signal.SIGHUP)
        reached.append("the rest")

    assert ([], [signal.SIGHUP]) == (reached, heard)


def test_what_is_ignored_stays_ignored(heard):
    """Under nohup a hangup ends nothing."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    reached = []
    with borrowed_signals():
        os.kill(os.getpid(), signal.SIGHUP)
        reached.append("the rest")

    assert (["the rest"], []) == (reached, heard)
    assert signal.SIG_IGN == signal.getsignal(signal.SIGHUP)
