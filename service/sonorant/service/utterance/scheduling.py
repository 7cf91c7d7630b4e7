"""What happens to an utterance when the server is full."""

from dataclasses import dataclass

from sonorant.service.errors import InvalidField
from sonorant.tts.v1 import synthesis_pb2

MAX_WAIT_MS = 600_000


@dataclass(frozen=True, slots=True)
class Scheduling:
    is_background: bool = False  # nobody listens; interactive utterances go first
    max_wait_s: float = 0.0  # how long it may wait for a place


AT_ONCE = Scheduling()


def check_scheduling(scheduling: synthesis_pb2.Scheduling, field: str) -> Scheduling:
    """Raises InvalidField."""
    if scheduling.priority not in synthesis_pb2.Priority.values():
        raise InvalidField(f"{field}.priority", f"there is no priority {scheduling.priority}")
    if scheduling.max_wait_ms > MAX_WAIT_MS:
        raise InvalidField(f"{field}.max_wait_ms", f"{scheduling.max_wait_ms} is over {MAX_WAIT_MS}")
    return Scheduling(scheduling.priority == synthesis_pb2.PRIORITY_BATCH, scheduling.max_wait_ms / 1000)
