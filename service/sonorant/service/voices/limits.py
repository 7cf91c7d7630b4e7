"""Checks whether there is room for one more voice, in the same way for every store. Pure."""

from sonorant.service.errors import VoiceQuotaReached
from sonorant.service.voices.store import VoiceLimits


def check_room(limits: VoiceLimits, num_voices: int, num_own: int, total_bytes: int) -> None:
    """Raise VoiceQuotaReached if there is no room. `num_own` of the `num_voices` are the owner's; `total_bytes`: with
    the new one.
    """
    if num_own >= limits.max_voices_of_owner:
        raise VoiceQuotaReached(
            "voices of this owner", f"you have all {limits.max_voices_of_owner} voices that you may; delete one first"
        )
    if num_voices >= limits.max_voices:
        raise VoiceQuotaReached("voices", f"the server has all {limits.max_voices} voices it keeps; delete one first")
    if total_bytes > limits.max_bytes:
        raise VoiceQuotaReached("bytes of voices", f"the server keeps at most {limits.max_bytes} bytes; delete a voice")
