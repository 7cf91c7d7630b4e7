"""Covers: a log that nobody reads stops nobody, and says later what is lost."""

import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

LINES = 5000
CODE = f"""
import logging
from sonorant import logs
logs.set_up()
for number in range({LINES}):
    logging.info("line %d", number, extra={{"more": "\u00e9\\udcff" * 50}})
print("unread", flush=True)
input()
logging.info("the last line")
"""


def socket_pair() -> tuple[int, int]:
    ours, theirs = socket.socketpair()
    return ours.detach(), theirs.detach()


@pytest.mark.parametrize("made", [os.pipe, os.openpty, socket_pair])
def test_a_log_that_nobody_reads_stops_nobody_and_tells_what_is_lost(made: Callable[[], tuple[int, int]]) -> None:
    ours, theirs = made()
    with closing(os.fdopen(ours, "rb", buffering=0)):
        process = subprocess.Popen(
            [sys.executable, "-c", CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=theirs
        )
        with process:
            assert process.stdin is not None and process.stdout is not None
            assert process.stdout.readline() == b"unread\n"
            assert os.get_blocking(theirs), "as others need it who have it, too"
            os.close(theirs)
            before = b"".join(pieces(ours))
            process.stdin.write(b"\n")
            process.stdin.close()
            after = b"".join(pieces(ours, until_the_end=True))
        *whole, cut = before.split(b"\n")
        assert 20 < len(whole) < LINES
        assert [json.loads(line)["message"] for line in whole] == [f"line {n}" for n in range(len(whole))]
        ends, *told = after.splitlines() if cut else [b"", *after.splitlines()]
        assert ends.strip() == b""
        lost, last = map(json.loads, told)
        num_lost = LINES - len(whole) - bool(cut)
        assert lost["message"].startswith(f"{num_lost} lines of this process's log before this one are lost")
        assert lost["level"] == "warning" and last["message"] == "the last line"


def pieces(descriptor: int, *, until_the_end: bool = False) -> Iterator[bytes]:
    while select.select([descriptor], [], [], None if until_the_end else 0)[0]:
        try:
            piece = os.read(descriptor, 1 << 16)
        except OSError:  # which is how the end of a terminal reads
            return
        if not piece:
            return
        yield piece
