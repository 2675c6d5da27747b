"""Interrupts: raised once, ignored in a shield, and as exit codes."""

import os
import signal
import threading

import pytest

from graphpass.cli.interrupts import exit_at, ignore_interrupts, raise_interrupts, shielded


@pytest.fixture(autouse=True)
def _handlers():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number=signal.SIGINT):
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_interrupt_is_raised_and_later_ones_are_ignored(number):
    raise_interrupts()
    with pytest.raises(KeyboardInterrupt):
        send(number)
    send(number)


def test_signals_exit_with_their_number():
    exit_at([signal.SIGTERM])
    with pytest.raises(SystemExit) as raised:
        send(signal.SIGTERM)
    assert raised.value.code == 128 + signal.SIGTERM


def test_interrupts_are_ignored_inside_a_shield_alone():
    raise_interrupts()
    with shielded():
        send()
    with pytest.raises(KeyboardInterrupt):
        send()


def test_a_shield_is_lifted_after_an_error():
    raise_interrupts()
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="no"), shielded():
        raise ValueError("no")
    assert signal.getsignal(signal.SIGINT) is handler


def test_other_threads_change_nothing():
    raise_interrupts()
    handler, seen = signal.getsignal(signal.SIGINT), []

    def inside():
        with shielded():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert seen == [handler]


def test_ignored_interrupts():
    ignore_interrupts()
    send()
    send(signal.SIGTERM)
