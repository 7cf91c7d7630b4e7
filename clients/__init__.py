"""Sonorant's client library; see `clients.client`."""

from clients.access import Access
from clients.client import ALL_UTTERANCES, Event, Session, SpeechClient, synthesis_config
from clients.errors import AccessDenied, InvalidRequest, ServerBusy, ServerUnavailable, SpeechError, VoiceNotFound
from clients.voice_methods import voice_mix
from sonorant.tts.v1.audio_pb2 import AudioChunk
from sonorant.tts.v1.speak_pb2 import FlushDone, GoAway
from sonorant.tts.v1.synthesis_pb2 import FinishReason, Marks, UtteranceDone, UtteranceStarted, Warning

__all__ = [
    "ALL_UTTERANCES",
    "Access",
    "AccessDenied",
    "AudioChunk",
    "Event",
    "FinishReason",
    "FlushDone",
    "GoAway",
    "InvalidRequest",
    "Marks",
    "ServerBusy",
    "ServerUnavailable",
    "Session",
    "SpeechClient",
    "SpeechError",
    "UtteranceDone",
    "UtteranceStarted",
    "VoiceNotFound",
    "Warning",
    "synthesis_config",
    "voice_mix",
]
