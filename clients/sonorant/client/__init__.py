"""Sonorant's client library; see `sonorant.client.client`."""

from sonorant.client.access import Access
from sonorant.client.client import SpeechClient
from sonorant.client.clip import Clip, Reason, Saved, reason_of
from sonorant.client.configs import scheduling, synthesis_config, text_policy, utterance_config
from sonorant.client.errors import (
    AccessDenied,
    DictionaryNotFound,
    InvalidRequest,
    ServerBusy,
    ServerUnavailable,
    SpeechError,
    TimedOut,
    VoiceNotFound,
)
from sonorant.client.events import ConnectionLost, Event, Resumed
from sonorant.client.listening.listener import Listener
from sonorant.client.listening.playback import PlaybackMeter
from sonorant.client.listening.player import Player
from sonorant.client.speaking.session import ALL_UTTERANCES, Session
from sonorant.client.transport.retries import Retry
from sonorant.client.turn import Heard, Turn, Word
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
    "Clip",
    "ConnectionLost",
    "DecodeStarted",
    "DictionaryNotFound",
    "Event",
    "FinishReason",
    "FlushDone",
    "GoAway",
    "Heard",
    "InvalidRequest",
    "Listener",
    "Marks",
    "PlaybackMeter",
    "Player",
    "Queued",
    "Reason",
    "Resumed",
    "Retry",
    "Revised",
    "Saved",
    "ServerBusy",
    "ServerUnavailable",
    "Session",
    "SpeechClient",
    "SpeechError",
    "TimedOut",
    "Turn",
    "UtteranceDone",
    "UtteranceStarted",
    "VoiceNotFound",
    "Warning",
    "Word",
    "reason_of",
    "scheduling",
    "synthesis_config",
    "text_policy",
    "utterance_config",
    "voice_mix",
]
