"""How much of a text a listener has heard, when no server is left to say so. Pure."""

import re
from collections.abc import Sequence

MS_PER_CHAR = 61.0  # of English speech, until an utterance of the session shows its own
MIN_CHARS = 20  # the least text from which the rate is learned


def chars_heard(text: str, word_ends: Sequence[tuple[int, int]], heard_ms: float, ms_per_char: float) -> int:
    """Return the end of the last word that was over after `heard_ms`, as an offset in code points.

    `word_ends`: when each word is over and its end in the text, from marks. Without them, all characters count alike.
    """
    if word_ends:
        return max((end for end_ms, end in word_ends if end_ms <= heard_ms), default=0)
    limit = heard_ms / ms_per_char
    return max((match.end() for match in re.finditer(r"\S+", text) if match.end() <= limit), default=0)
