"""Delays the talker's next step while the codec computes on the same GPU, or on the same cores.

On a GPU only the step after a stream's first frame waits, until the first chunk is decoded: a listener is waiting for
that chunk, and the codec's call takes much longer beside a step than alone. With few streams, nobody waits for the
step, as other listeners still have audio to play. With many, some stream would have its first chunk after nearly every
step, and all streams would get fewer frames.

On a CPU whose cores both use in full, each step waits. Beside each other, each would stop all threads of the other
whenever it has one of its cores.
"""

import time
from typing import Protocol

from sonorant.engine.ipc.heartbeat import Heartbeat, Step

FEW_ROWS = 8  # wait only if the step before had no more rows
MAX_WAIT_S = 0.003  # a call of one frame takes 1 ms
PAUSE_S = 20e-6
MAX_TURN_S = 2.0  # of the codec on a CPU, which goes on after that
TURN_PAUSE_S = 500e-6


class Sent(Protocol):
    """The records that were sent to the codec."""

    @property
    def is_read(self) -> bool: ...


class CodecTurn:
    """Waits after each step."""

    most_s, pause_s = MAX_TURN_S, TURN_PAUSE_S

    def __init__(self, sent: Sent, codec: Heartbeat) -> None:
        self._sent = sent
        self._codec = codec

    def __call__(self, step: Step) -> None:
        """Wait until the codec has read all records and is idle, or for `most_s` at most."""
        latest_s = time.monotonic() + self.most_s
        while (not self._sent.is_read or self._codec.busy_since_ns) and time.monotonic() < latest_s:
            time.sleep(self.pause_s)


class FirstChunkWait(CodecTurn):
    """Waits after first frames, if few streams run."""

    most_s, pause_s = MAX_WAIT_S, PAUSE_S

    def __call__(self, step: Step) -> None:
        if step.num_prompt_rows and step.num_rows <= FEW_ROWS:
            super().__call__(step)
