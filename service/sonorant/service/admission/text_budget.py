"""How much text a key may send per minute, over all its calls. Pure.

The text of a minute may come at once, and is paid off evenly.
"""

from sonorant.service.errors import LimitReached

WINDOW_S = 60.0


def pay(now_s: float, paid_off_s: float, num_chars: int, per_minute: int) -> float:
    """Return when all text will be paid off, with this one. Raises LimitReached while too much is not paid off.

    A text longer than a minute's never fits. `Caller.text_limit` refuses such texts earlier, but pronunciations may
    make a text longer after that.
    """
    if num_chars > per_minute:
        raise LimitReached(
            "text of this key",
            f"this API key allows {per_minute} characters of text per minute, counted with their pronunciations; "
            f"this text has {num_chars}: send less, or shorten the pronunciations",
        )
    paid_off_s = max(now_s, paid_off_s) + num_chars * WINDOW_S / per_minute
    late_s = round(paid_off_s - WINDOW_S - now_s, 6)  # rounded, so that a text that fits exactly is not refused
    if late_s > 0:
        raise too_much(per_minute, num_chars, late_s)
    return paid_off_s


def left(now_s: float, paid_off_s: float, per_minute: int) -> int:
    """Return how many characters fit now."""
    return int(max(0.0, WINDOW_S - max(0.0, paid_off_s - now_s)) * per_minute / WINDOW_S)


def too_much(per_minute: int, num_chars: int, late_s: float) -> LimitReached:
    return LimitReached(
        "text of this key",
        f"this API key allows {per_minute} characters of text per minute; send these {num_chars} in {late_s:.1f} s",
        retry_s=late_s,
    )
