"""Processes that take permits from one ledger at the same time. As a program, it gets the ledger on stdin."""

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from sonorant.service.access.api_keys import Caller
from sonorant.service.admission.ledger import Counted, Ledger
from sonorant.service.admission.limits import Limits
from sonorant.service.admission.permits import Permit, Permits
from sonorant.service.errors import LimitReached

LIMIT = 20  # of sessions
ALL_READY_S = 0.001


class Racer:
    """One of the processes, as the test sees it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.pid: int = connection.recv()

    def tell(self, do: str, caller: Caller, num: int, at_s: float = 0.0) -> None:
        self._connection.send((do, caller, num, at_s))

    def answer(self, timeout_s: float = 30.0) -> int:
        """How many it got, or gave back."""
        assert self._connection.poll(timeout_s), "no answer: somebody keeps the lock"
        answer: int = self._connection.recv()
        return answer

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        with self._connection:  # its end: the process is gone
            while self._connection.poll(10):
                try:
                    self._connection.recv()
                except (EOFError, ConnectionResetError):
                    return
        raise AssertionError("it lives on")


def all_at_once(racers: Sequence[Racer], do: str, caller: Caller, nums: Sequence[int]) -> list[int]:
    """Have each try `nums` times at the same time; return how often each succeeded."""
    at_s = time.monotonic() + ALL_READY_S
    for racer, num in zip(racers, nums, strict=True):
        racer.tell(do, caller, num, at_s)
    return [racer.answer() for racer in racers]


@contextmanager
def racing(ledger: Ledger, num: int) -> Iterator[list[Racer]]:
    ours, theirs = zip(*(Pipe() for _ in range(num)), strict=True)
    numbers = [end.fileno() for end in theirs]
    program = subprocess.Popen(
        [sys.executable, "-m", "tests.service.admission.racers"],
        stdin=subprocess.PIPE,
        pass_fds=[*numbers, *ledger.fds()],
        start_new_session=True,
    )
    assert program.stdin is not None
    with program.stdin as stdin:
        pickle.dump((numbers, ledger), stdin)
    for end in theirs:
        end.close()
    try:
        yield [Racer(end) for end in ours]
    finally:
        os.killpg(program.pid, signal.SIGKILL)
        program.wait()
        for end in ours:
            end.close()


def race(connection: Connection, ledger: Ledger) -> None:
    permits, limits = Permits(Counted.SESSIONS, LIMIT, lambda: 1, ledger), Limits(ledger)
    held: list[Permit] = []
    connection.send(os.getpid())
    while True:
        do, caller, num, at_s = connection.recv()
        while time.monotonic() < at_s:
            pass
        num_done = 0
        for _ in range(num):
            try:
                if do == "take":
                    held.append(permits.take(caller, caller.max_sessions))
                    assert ledger.total(Counted.SESSIONS) <= LIMIT
                elif do == "text":
                    limits.take(caller, 1)
                elif do == "churn":
                    permits.take(caller, caller.max_sessions).give_back()
                elif held:
                    held.pop().give_back()
                else:
                    break
                num_done += 1
            except LimitReached:
                pass
        connection.send(num_done)


def main() -> None:
    told: Any = pickle.load(sys.stdin.buffer)
    numbers, ledger = told
    for number, fd in enumerate(numbers):
        if os.fork() == 0:
            for other in numbers:
                if other != fd:
                    os.close(other)
            race(Connection(fd), ledger.of_process(number))
    for fd in numbers:
        os.close(fd)
    signal.pause()


if __name__ == "__main__":
    main()
