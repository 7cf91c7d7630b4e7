"""Sonorant in LiveKit agents: `pip install 'sonorant[livekit]'`."""

from sonorant.client.turn import Heard
from sonorant.livekit.tts import TTS, SynthesizeStream

__all__ = ["TTS", "Heard", "SynthesizeStream"]
