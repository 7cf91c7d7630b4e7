"""The voices of the loaded checkpoints, as the contract describes them."""

from collections.abc import Sequence

from sonorant.engine import EngineInfo
from sonorant.tts.v1 import voice_pb2


class Presets:
    def __init__(self, models: Sequence[EngineInfo]) -> None:
        """If several checkpoints have a speaker, the first one's is listed; it is also the one that speaks."""
        self.voices: dict[str, voice_pb2.Voice] = {}  # by their ids, which are in lower case
        for info in models:
            for speaker in info.speakers:
                voice = voice_pb2.Voice(
                    voice_id=speaker,
                    kind=voice_pb2.VOICE_KIND_PRESET,
                    display_name=speaker.replace("_", " ").title(),
                    description=f"A speaker of {info.model}.",
                    languages=info.languages,
                    model=info.model,
                )
                self.voices.setdefault(speaker, voice)
        self.names = tuple(self.voices)
