"""Sonorant in Pipecat pipelines: `pip install 'sonorant[pipecat]'`."""

from sonorant.client.turn import Heard
from sonorant.pipecat.tts import SonorantTTSService, SonorantTTSSettings

__all__ = ["Heard", "SonorantTTSService", "SonorantTTSSettings"]
