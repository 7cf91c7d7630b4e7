"""GetUsage: what a key has used, and what is left of its limits."""

from sonorant.service.access.api_keys import Caller
from sonorant.service.errors import MethodNotServed
from sonorant.service.session.parts import Parts
from sonorant.tts.v1.synthesis_pb2 import Usage
from sonorant.tts.v1.text_to_speech_service_pb2 import GetUsageResponse

_NO_KEYS = "this server counts usage by API key and has no keys; start it with --api-keys FILE"


async def usage(caller: Caller, parts: Parts) -> GetUsageResponse:
    """Raises MethodNotServed."""
    if not caller.name:
        raise MethodNotServed(_NO_KEYS, "USAGE_NOT_COUNTED")
    used = parts.usage.of(caller)
    response = GetUsageResponse(
        key=caller.name,
        usage=Usage(input_chars=used.num_chars, audio_ms=used.audio_ms, clones=used.num_clones),
        max_text_chars_per_minute=caller.max_text_chars_per_minute,
        text_chars_left=await parts.limits.text_left(caller),
        max_sessions=parts.permits.limit(caller),
        active_sessions=parts.permits.num_of(caller),
    )
    response.since.FromMilliseconds(round(parts.usage.since_s * 1000))
    return response
