"""Writes every message of a session as one line with its time, for people who want to see what happens."""

import time
from collections.abc import Callable, Iterable

from google.protobuf.json_format import MessageToJson

from sonorant.tts.v1.speak_pb2 import SpeakRequest, SpeakResponse


class Trace:
    """Calls `write` with lines such as `57.2 ms  < u1 {"audio": {"numSamples": 1920}} + 3840 bytes`, timed from its
    creation on."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._start_s = time.monotonic()

    def sent(self, request: SpeakRequest) -> None:
        self._message(">", request)

    def closed(self) -> None:
        self._line(">", "half-close")

    def received(self, response: SpeakResponse) -> None:
        self._message("<", response)

    def metadata(self, which: str, entries: Iterable[tuple[str, str | bytes]]) -> None:
        """`which`: "headers", which come first, or "trailers", which contain the latency of the call."""
        values = [f"{name}: {value if isinstance(value, str) else f'{len(value)} bytes'}" for name, value in entries]
        if values:
            self._line("<", f"{which} {', '.join(values)}")

    def _message(self, arrow: str, message: SpeakRequest | SpeakResponse) -> None:
        shown = type(message)()
        shown.CopyFrom(message)
        shown.utterance_id = ""
        sizes: list[str] = []
        if isinstance(shown, SpeakResponse) and shown.HasField("audio"):
            sizes.append(f"+ {len(shown.audio.data)} bytes")
            if shown.audio.codes:
                sizes.append(f"+ {sum(len(part.codes) + len(part.packed) for part in shown.audio.codes)} of codes")
            shown.audio.ClearField("data")
            shown.audio.ClearField("codes")
        words = [message.utterance_id] if message.utterance_id else []
        words.append(MessageToJson(shown, indent=None, ensure_ascii=False))
        self._line(arrow, " ".join([*words, *sizes]))

    def _line(self, arrow: str, text: str) -> None:
        self._write(f"{(time.monotonic() - self._start_s) * 1000:8.1f} ms  {arrow} {text}")
