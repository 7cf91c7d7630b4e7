"""How clients of every protocol are told that not all of their text was spoken. It is an addition to the protocols."""

import logging

from sonorant.gateway.upstream.calls import Call
from sonorant.tts.v1.synthesis_pb2 import FINISH_REASON_MAX_AUDIO, FINISH_REASON_RUNAWAY, UtteranceDone

log = logging.getLogger(__name__)

HEADER = "X-Finish-Reason"
# "length" is OpenAI's word for a limit that was reached.
_REASONS = {FINISH_REASON_MAX_AUDIO: "length", FINISH_REASON_RUNAWAY: "runaway"}


def early_end(done: UtteranceDone, call: Call) -> dict[str, str]:
    """Return what to add to the last message: nothing if all was spoken. An early end is logged, too."""
    if (reason := _REASONS.get(done.reason)) is None:
        return {}
    told = {"spoken_chars": done.stats.spoken_chars, "input_chars": done.stats.input_chars}
    log.warning(
        "the audio ended before its text", extra={"request_id": call.request_id, "finish_reason": reason, **told}
    )
    return {"finish_reason": reason}
