"""What a session tells its caller."""

from dataclasses import dataclass
from typing import TypeAlias

from sonorant.client.errors import SpeechError
from sonorant.tts.v1.audio_pb2 import AudioChunk
from sonorant.tts.v1.speak_pb2 import FlushDone, GoAway, Revised, SpeakResponse
from sonorant.tts.v1.synthesis_pb2 import Marks, Queued, UtteranceDone, UtteranceStarted, Warning


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """The session has lost its server and looks for another one, or for the same one again. Text, ends and cancels that
    the caller sends meanwhile are kept. `Resumed` follows, or an error after 20 seconds without a server."""

    error: SpeechError | None  # what gRPC said; None: the server was silent, or gave an utterance up


@dataclass(frozen=True, slots=True)
class Resumed:
    """The session lost its server and continues on another one, or on the same one again, with the sample after the
    last one received. Callers need not do anything, unless they want to tell the listener about a pause."""

    gap_s: float  # from the loss until the next server answered
    session_id: str  # of the next server


Payload: TypeAlias = (
    Queued
    | UtteranceStarted
    | AudioChunk
    | Marks
    | FlushDone
    | Revised
    | UtteranceDone
    | Warning
    | GoAway
    | ConnectionLost
    | Resumed
)

Message: TypeAlias = SpeakResponse | ConnectionLost | Resumed


@dataclass(frozen=True, slots=True)
class Event:
    """One message of a session and the utterance that it is about ("" if none)."""

    utterance_id: str
    payload: Payload
