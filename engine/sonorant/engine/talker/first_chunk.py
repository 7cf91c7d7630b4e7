"""Delays the step after a stream's first frame until the first chunk is decoded, where talker and codec share a GPU.

A listener is waiting for that chunk, and the codec's call takes three times as long beside a step as alone. With few
streams, nobody waits for the step, as other listeners still have audio to play. With many, some stream would have its
first chunk after nearly every step, and all streams would get fewer frames.
"""

import time
from typing import Protocol

from sonorant.engine.ipc.heartbeat import Heartbeat, Step

FEW_ROWS = 8  # wait only if the step before had no more rows
MAX_WAIT_S = 0.003  # a call of one frame takes 1 ms
PAUSE_S = 20e-6


class Sent(Protocol):
    """The records that were sent to the codec."""

    @property
    def is_read(self) -> bool: ...


class FirstChunkWait:
    def __init__(self, sent: Sent, codec: Heartbeat) -> None:
        self._sent = sent
        self._codec = codec

    def __call__(self, step: Step) -> None:
        """After a step: wait until the codec has read all records and is idle, or for MAX_WAIT_S at most."""
        if not step.num_prompt_rows or step.num_rows > FEW_ROWS:
            return
        latest_s = time.monotonic() + MAX_WAIT_S
        while (not self._sent.is_read or self._codec.busy_since_ns) and time.monotonic() < latest_s:
            time.sleep(PAUSE_S)
