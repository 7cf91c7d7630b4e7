"""Sonorant's client library; see `sonorant.client.client`."""

from sonorant.client.access import Access
from sonorant.client.client import SpeechClient, scheduling, synthesis_config, text_policy
from sonorant.client.errors import (
    AccessDenied,
    InvalidRequest,
    ServerBusy,
    ServerUnavailable,
    SpeechError,
    VoiceNotFound,
)
from sonorant.client.events import ConnectionLost, Event, Resumed
from sonorant.client.listener import Listener
from sonorant.client.playback import PlaybackMeter
from sonorant.client.session import ALL_UTTERANCES, Session
from sonorant.client.voice_methods import voice_mix
from sonorant.tts.v1.audio_pb2 import AudioChunk
from sonorant.tts.v1.speak_pb2 import FlushDone, GoAway, Revised
from sonorant.tts.v1.synthesis_pb2 import FinishReason, Marks, Queued, UtteranceDone, UtteranceStarted, Warning
from sonorant.tts.v1.text_to_speech_service_pb2 import DecodeStarted

__version__ = "0.1.0"

__all__ = [
    "ALL_UTTERANCES",
    "Access",
    "AccessDenied",
    "AudioChunk",
    "ConnectionLost",
    "DecodeStarted",
    "Event",
    "FinishReason",
    "FlushDone",
    "GoAway",
    "InvalidRequest",
    "Listener",
    "Marks",
    "PlaybackMeter",
    "Queued",
    "Resumed",
    "Revised",
    "ServerBusy",
    "ServerUnavailable",
    "Session",
    "SpeechClient",
    "SpeechError",
    "UtteranceDone",
    "UtteranceStarted",
    "VoiceNotFound",
    "Warning",
    "scheduling",
    "synthesis_config",
    "text_policy",
    "voice_mix",
]
