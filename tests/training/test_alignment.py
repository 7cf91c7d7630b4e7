import numpy as np

from sonorant.training.alignment import FRAME_SAMPLES, NO_TOKEN, align
from sonorant.training.flite import PHONES, SAMPLE_RATE_HZ, Speech

PAUSE, AH, K = (PHONES.index(name) for name in ("pau", "ah", "k"))


def speech(*segments: tuple[int, float, int]) -> Speech:
    """(phone, duration, word) each."""
    ends_s = np.cumsum([duration_s for _, duration_s, _ in segments])
    samples = np.arange(round(ends_s[-1] * SAMPLE_RATE_HZ), dtype=np.int64).astype(np.int16)
    return Speech(samples, tuple(s[0] for s in segments), tuple(map(float, ends_s)), tuple(s[2] for s in segments))


def test_silence_is_cut_to_two_frames_before_and_a_short_tail_after() -> None:
    aligned = align(speech((PAUSE, 0.48, -1), (AH, 0.4, 0), (PAUSE, 0.5, -1)), "ah", [(0, 2)])
    assert aligned is not None
    assert aligned.num_frames == 9  # 0.16 + 0.4 + 0.12 s, the last frame filled up
    assert len(aligned.samples) == 9 * FRAME_SAMPLES
    assert aligned.samples[0] == round(0.32 * SAMPLE_RATE_HZ)
    assert aligned.phones.reshape(9, 4)[:, 0].tolist() == [PAUSE] * 2 + [AH] * 5 + [PAUSE] * 2


def test_the_guide_walks_through_the_tokens_of_a_word() -> None:
    spoken = speech((PAUSE, 0.16, -1), (AH, 0.32, 0), (K, 0.32, 0), (AH, 0.32, 1), (PAUSE, 0.3, -1))
    aligned = align(spoken, "abcd ef.", [(0, 2), (2, 4), (4, 7), (7, 8)])
    assert aligned is not None
    assert aligned.guide.tolist()[:14] == [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]


def test_no_guide_where_the_teacher_counts_other_words() -> None:
    aligned = align(speech((AH, 0.4, 0), (K, 0.4, 1)), "ak", [(0, 2)])
    assert aligned is not None
    assert set(aligned.guide.tolist()) == {NO_TOKEN}


def test_nothing_to_say() -> None:
    assert align(speech((PAUSE, 0.4, -1)), "", []) is None
