"""Shields against interrupts. Tests of signals run in processes of their own, in test_main and test_watch."""

import signal
import threading

import pytest

from graphpass.cli.interrupts import shielded


def test_a_shield_is_lifted_after_an_error():
    handler = signal.getsignal(signal.SIGINT)

    def fail():
        with shielded():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert signal.getsignal(signal.SIGINT) is handler


def test_other_threads_keep_the_handler():
    handler, seen = signal.getsignal(signal.SIGINT), []

    def inside():
        with shielded():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert seen == [handler]
