"""The line that is logged when a request is over, through whichever door it came."""

import logging

from sonorant.gateway.errors import Refusal

log = logging.getLogger(__name__)


def log_end(door: str, status: int, duration_s: float, refusal: Refusal | None, **told: str) -> None:
    """`status`: that of HTTP, also for doors without one. `told`: what else is known of the request, but no text."""
    line: dict[str, str | int] = {"door": door, "status": status, "duration_ms": round(duration_s * 1000), **told}
    if refusal is not None:
        line |= {"error_reason": refusal.code or "", "error": refusal.message}
    log.log(logging.WARNING if status >= 500 else logging.INFO, "request ended", extra=line)
