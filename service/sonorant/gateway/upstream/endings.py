"""How clients of every protocol are told that not all of their text was spoken, and of warnings. It is an addition to
the protocols."""

import logging
from typing import Any

from sonorant.gateway.upstream.calls import UpstreamCall
from sonorant.tts.v1.synthesis_pb2 import FINISH_REASON_MAX_AUDIO, FINISH_REASON_RUNAWAY, UtteranceDone

log = logging.getLogger(__name__)

HEADERS = "X-Finish-Reason, X-Warnings"
# "length" is OpenAI's word for a limit that was reached.
_REASONS = {FINISH_REASON_MAX_AUDIO: "length", FINISH_REASON_RUNAWAY: "runaway"}


def told_at_end(done: UtteranceDone, call: UpstreamCall) -> dict[str, Any]:
    """Return what to add to the last message: nothing if all was spoken. An early end is logged, too."""
    warnings = [{"code": warning.code, "message": warning.message} for warning in done.warnings]
    told: dict[str, Any] = {"warnings": warnings} if warnings else {}
    if (reason := _REASONS.get(done.reason)) is None:
        return told
    chars = {"spoken_chars": done.stats.spoken_chars, "input_chars": done.stats.input_chars}
    log.warning(
        "the audio ended before its text", extra={"request_id": call.request_id, "finish_reason": reason, **chars}
    )
    return {"finish_reason": reason, **told}


def as_headers(told: dict[str, Any]) -> dict[str, str]:
    """Return the same as headers: of warnings, the codes."""
    fields = {"X-Finish-Reason": told.get("finish_reason", "")}
    fields["X-Warnings"] = ", ".join(warning["code"] for warning in told.get("warnings", ()))
    return {name: value for name, value in fields.items() if value}
