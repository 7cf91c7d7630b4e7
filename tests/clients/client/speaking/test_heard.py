"""What a listener has heard, when no server is left to say so."""

import pytest

from sonorant.client.speaking.heard import chars_heard

TEXT = "She looked out over the river."
MARKS = [(200, 3), (480, 10)]


@pytest.mark.parametrize(
    ("word_ends", "heard_ms", "chars"),
    [
        (MARKS, 199, 0),
        (MARKS, 479, 3),
        (MARKS, 480, 10),
        (MARKS[:1], 560, 3),  # 6 characters later
        (MARKS[:1], 640, 10),  # marks come later than their audio: another 7 characters were heard
        (MARKS[:1], 60_000, len(TEXT)),
        ([], 640, 10),
        ([], 100, 0),
    ],
)
def test_words_behind_the_last_mark_are_estimated(
    word_ends: list[tuple[int, int]], heard_ms: float, chars: int
) -> None:
    assert chars_heard(TEXT, word_ends, heard_ms, ms_per_char=60.0) == chars
