"""Whether there is room for one more voice: the same answer whatever keeps them. Pure."""

from sonorant.service.errors import VoiceQuotaReached
from sonorant.service.voices.store import VoiceLimits


def check_room(limits: VoiceLimits, num_voices: int, num_own: int, total_bytes: int) -> None:
    """Raises VoiceQuotaReached. `num_voices` are there, `num_own` of them the owner's; `total_bytes` there would be."""
    if num_own >= limits.max_voices_of_owner:
        raise VoiceQuotaReached(
            "voices of this owner", f"all {limits.max_voices_of_owner} voices of yours are taken; delete one first"
        )
    if num_voices >= limits.max_voices:
        raise VoiceQuotaReached("voices", f"all {limits.max_voices} voices of this server are taken; delete one first")
    if total_bytes > limits.max_bytes:
        raise VoiceQuotaReached("bytes of voices", f"{limits.max_bytes} bytes are kept at most; delete a voice first")
