"""The messages to Cartesia's clients, on a WebSocket and as server-sent events. Pure."""

from collections.abc import Mapping
from typing import Any

from sonorant.gateway.errors import Refusal
from sonorant.gateway.web.json_text import head_of
from sonorant.tts.v1.synthesis_pb2 import Marks


def chunk_head(context_id: str) -> bytes:
    """The beginning of a chunk's message up to its audio, for `with_audio`."""
    return head_of(part("chunk", context_id, step_time=0), "data")


def part(kind: str, context_id: str, **more: Any) -> dict[str, Any]:
    """A message that is not the last one of its context."""
    return {"type": kind, "context_id": context_id, "status_code": 206, "done": False, **more}


def timestamps(context_id: str, marks: Marks) -> dict[str, Any]:
    words = {
        "words": [mark.text for mark in marks.marks],
        "start": [mark.start_ms / 1000 for mark in marks.marks],
        "end": [mark.end_ms / 1000 for mark in marks.marks],
    }
    return part("timestamps", context_id, word_timestamps=words)


def done_message(context_id: str, ending: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`ending`: see `told_at_end`."""
    return {"type": "done", "context_id": context_id, "status_code": 200, "done": True, **(ending or {})}


def error_message(refusal: Refusal, context_id: str | None) -> dict[str, Any]:
    """An error message. It has no `done`, which LiveKit would take for success."""
    return {
        "type": "error",
        "context_id": context_id,
        "status_code": refusal.status,
        "title": refusal.body["error"]["type"],
        "error": refusal.message,
        "message": refusal.message,
        "error_code": refusal.code,
    }
