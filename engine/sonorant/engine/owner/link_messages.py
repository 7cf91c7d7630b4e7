"""The messages between the process that owns the worker pairs and each of the server processes that use them."""

from dataclasses import dataclass

from sonorant.engine.encoder.wire import EncoderAnswer, Upload
from sonorant.engine.errors import EngineError
from sonorant.engine.ipc.shared_bytes import SharedBytes
from sonorant.engine.owner.board import Board
from sonorant.engine.types import Spent
from sonorant.engine.workers.endpoint import Endpoint, EngineState, Facts

# From the owner


@dataclass(frozen=True, slots=True)
class PairState:
    """The new state of a pair. At READY it comes with the server process's endpoint; the one before is void."""

    pair: int
    state: EngineState
    reason: str
    facts: Facts
    endpoint: Endpoint | None


@dataclass(frozen=True, slots=True)
class Welcome:
    """The first message to a server process."""

    number: int
    generation: int
    board: Board
    pairs: tuple[PairState, ...]
    standbys: tuple[bool, ...]  # which pairs are on standby now


@dataclass(frozen=True, slots=True)
class Judged:
    """The answer to Lost."""

    pair: int
    culprit: int  # a stream's id; 0: nobody, or one of another server process


@dataclass(frozen=True, slots=True)
class Released:
    """These streams may go on."""

    stream_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Encoded:
    """The answer to Encode."""

    job: int
    answer: EncoderAnswer | EngineError
    spent: Spent


# From a server process


@dataclass(frozen=True, slots=True)
class Lost:
    """The server process's streams that ran when the workers of a pair died. Answers every PairState of RESTARTING."""

    pair: int
    stream_ids: tuple[int, ...]
    heard: tuple[int, ...]  # those of them that were heard before


@dataclass(frozen=True, slots=True)
class Acquitted:
    """These streams, of a Lost, were heard again, have ended, or have nothing to do next."""

    stream_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Broken:
    """The server process cannot use what the workers of a pair send."""

    pair: int
    reason: str


@dataclass(frozen=True, slots=True)
class Encode:
    """Encode a recording with the encoder of a pair's checkpoint."""

    job: int  # a number that the server process uses once
    pair: int
    upload: Upload  # without its audio
    audio: SharedBytes


@dataclass(frozen=True, slots=True)
class Drop:
    """The caller of an Encode has left."""

    job: int


# Both ways


@dataclass(frozen=True, slots=True)
class RoomFreed:
    """A server process has given up a place, while another waits for one."""
