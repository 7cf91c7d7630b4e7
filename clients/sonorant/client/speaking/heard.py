"""How much of a text a listener has heard, when no server is left to say so. Pure."""

import re
from collections.abc import Sequence

MS_PER_CHAR = 61.0  # of English speech, until an utterance of the session shows its own
MIN_CHARS = 20  # the least text from which the rate is learned


def chars_heard(text: str, word_ends: Sequence[tuple[int, int]], heard_ms: float, ms_per_char: float) -> int:
    """Return the end of the last word that was over after `heard_ms`, as an offset in code points.

    `word_ends`: when each word is over and its end in the text, from marks. These come later than their audio, so
    behind the last of them all characters count alike.
    """
    last_ms, last_end = max(word_ends, default=(0, 0))
    if heard_ms < last_ms:
        return max((end for end_ms, end in word_ends if end_ms <= heard_ms), default=0)
    limit = last_end + (heard_ms - last_ms) / ms_per_char
    return max(
        (match.end() for match in re.finditer(r"\S+", text) if last_end < match.end() <= limit), default=last_end
    )
