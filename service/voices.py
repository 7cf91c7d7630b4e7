"""The voices of the loaded checkpoints, as the contract describes them."""

from collections.abc import Callable, Sequence

from engine import EngineInfo
from service.errors import InvalidField, VoiceNotFound
from sonorant.tts.v1 import voice_pb2, voice_service_pb2

DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 1000


class Voices:
    def __init__(self, models: Sequence[EngineInfo]) -> None:
        """A speaker that several checkpoints have is that of the first, as it is when it speaks."""
        self._voices: dict[str, voice_pb2.Voice] = {}
        for info in models:
            for speaker in info.speakers:
                voice = voice_pb2.Voice(
                    voice_id=speaker,
                    kind=voice_pb2.VOICE_KIND_PRESET,
                    display_name=speaker.replace("_", " ").title(),
                    description=f"A speaker of {info.model}.",
                    languages=info.languages,
                )
                self._voices.setdefault(speaker, voice)

    def get(self, voice_id: str) -> voice_pb2.Voice:
        try:
            return self._voices[voice_id.lower()]
        except KeyError:
            raise VoiceNotFound(voice_id, f"no voice {voice_id!r}; ListVoices tells which there are") from None

    def page(
        self, page_size: int, page_token: str, speaks: Callable[[str], bool], kind: int
    ) -> voice_service_pb2.ListVoicesResponse:
        """`speaks`: whether a voice speaks the language asked for.

        A page token is the id of the last voice of the page before, so that it means the same on every server.
        """
        if page_size > MAX_PAGE_SIZE:
            raise InvalidField("page_size", f"{page_size} is over {MAX_PAGE_SIZE}")
        if kind not in voice_pb2.VoiceKind.values():
            raise InvalidField("kind", f"{kind} is no VoiceKind")
        if page_token and page_token not in self._voices:
            raise InvalidField("page_token", "not a token of this server; begin again without one")
        voices = list(self._voices.values())
        begin = list(self._voices).index(page_token) + 1 if page_token else 0
        rest = [
            voice
            for voice in voices[begin:]
            if kind in (voice_pb2.VOICE_KIND_UNSPECIFIED, voice.kind) and speaks(voice.voice_id)
        ]
        page = rest[: page_size or DEFAULT_PAGE_SIZE]
        return voice_service_pb2.ListVoicesResponse(
            voices=page, next_page_token=page[-1].voice_id if len(page) < len(rest) else ""
        )
