"""Giving way to a first chunk: where talker and codec share a GPU, the step after a stream's first frame waits for it.

Somebody waits for that chunk, and beside a step the codec's call takes three times as long as alone. With few streams
nobody waits for the step: whoever hears something has more to hear. With many, somebody always would, and all would
get less.
"""

import time
from typing import Protocol

from sonorant.engine.ipc.heartbeat import Heartbeat, Step

FEW_ROWS = 4  # streams, of the step before
MAX_WAIT_S = 0.003  # a call of one frame takes 1 ms
PAUSE_S = 20e-6


class Sent(Protocol):
    """What was handed to the codec."""

    @property
    def is_read(self) -> bool: ...


class FirstChunkWait:
    def __init__(self, sent: Sent, codec: Heartbeat) -> None:
        self._sent = sent
        self._codec = codec

    def __call__(self, step: Step) -> None:
        """After a step: return once the codec has read all and has nothing more to do at once, or after MAX_WAIT_S."""
        if not step.num_prompt_rows or step.num_rows > FEW_ROWS:
            return
        latest_s = time.monotonic() + MAX_WAIT_S
        while (not self._sent.is_read or self._codec.busy_since_ns) and time.monotonic() < latest_s:
            time.sleep(PAUSE_S)
