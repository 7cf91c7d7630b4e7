"""Calls about voices, and what a refusal of one says."""

from collections.abc import Iterator
from typing import Any

import grpc

from sonorant.tts.v1.voice_service_pb2 import (
    CreateVoiceRequest,
    ListVoicesRequest,
    UploadVoiceRequest,
)
from tests.service.harness import Served, failure

RECORDING = b"RIFF and so on"
CONSENT = "Anna agreed in writing on 2026-01-02."
CODE = grpc.StatusCode


def clone(voice_id: str = "", **more: Any) -> CreateVoiceRequest:
    source = {"reference": {"audio": RECORDING, "transcript": "hello"}}
    return CreateVoiceRequest(**{"voice_id": voice_id, "consent": CONSENT} | source | more)


def pieces(create: CreateVoiceRequest, *audio: bytes) -> Iterator[UploadVoiceRequest]:
    """With the first message, unless there is none."""
    yield UploadVoiceRequest(create=create)
    for piece in audio:
        yield UploadVoiceRequest(audio=piece)


async def ids(server: Served, **filters: Any) -> list[str]:
    return [voice.voice_id for voice in (await server.voices.ListVoices(ListVoicesRequest(**filters))).voices]


async def refused(call: Any) -> tuple[grpc.StatusCode, str, str]:
    """Status, reason, and the field or resource that is named."""
    code, message, details = await failure(call)
    named = ""
    if "BadRequest" in details:
        named = details["BadRequest"].field_violations[0].field
    elif "ResourceInfo" in details:
        named = details["ResourceInfo"].resource_name
    assert message
    return code, details["ErrorInfo"].reason, named
