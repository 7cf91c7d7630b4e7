import numpy as np

from sonorant.training.alignment import FRAME_SAMPLES, NO_TOKEN, SAMPLE_RATE_HZ, align, onset_s
from sonorant.training.teachers.speech import PHONES, Speech

PAUSE, AH, K = (PHONES.index(name) for name in ("pau", "ah", "k"))
Span = tuple[int, int] | None


def speech(*segments: tuple[int, float, Span], rate_hz: int = SAMPLE_RATE_HZ) -> Speech:
    """(phone, duration, characters of its word) each; pauses are silent."""
    ends_s = np.cumsum([duration_s for _, duration_s, _ in segments])
    samples = np.concatenate(
        [
            np.full(round(duration_s * rate_hz), 0 if phone == PAUSE else 8000, np.int16)
            for phone, duration_s, _ in segments
        ]
    )
    phones, _, spans = zip(*segments, strict=True)
    return Speech(samples, rate_hz, phones, tuple(map(float, ends_s)), spans)


def test_silence_is_cut_to_one_frame_before_and_a_short_tail_after() -> None:
    aligned = align(speech((PAUSE, 0.48, None), (AH, 0.4, (0, 2)), (PAUSE, 0.5, None)), [(0, 2)])
    assert aligned is not None
    assert aligned.num_frames == 8  # 0.075 + 0.4 + 0.12 s, the last frame filled up
    assert len(aligned.samples) == 8 * FRAME_SAMPLES
    assert onset_s(aligned.samples) == 0.075
    assert aligned.phones.reshape(8, 4)[:, 0].tolist() == [PAUSE] + [AH] * 5 + [PAUSE] * 2


def test_a_sound_before_the_first_phone_is_kept() -> None:
    """Kokoro's sounds begin some 30 ms before the times that it gives."""
    early = speech((PAUSE, 0.3, None), (AH, 0.4, (0, 2)))
    early.samples[round(0.27 * SAMPLE_RATE_HZ) :] = 8000
    aligned = align(early, [(0, 2)])
    assert aligned is not None
    assert onset_s(aligned.samples) == 0.075


def test_other_rates_are_resampled() -> None:
    aligned = align(speech((PAUSE, 0.3, None), (AH, 0.4, (0, 2)), rate_hz=16000), [(0, 2)])
    assert aligned is not None
    assert aligned.num_frames == 6
    assert onset_s(aligned.samples) in (0.07, 0.075)


def test_the_guide_walks_through_the_tokens_of_a_word() -> None:
    segments = (PAUSE, 0.075, None), (AH, 0.32, (0, 4)), (K, 0.32, (0, 4)), (AH, 0.32, (5, 7)), (PAUSE, 0.3, None)
    aligned = align(speech(*segments), [(0, 2), (2, 4), (4, 7), (7, 8)])
    assert aligned is not None
    assert aligned.guide.tolist()[:13] == [0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]


def test_no_guide_where_the_teacher_does_not_know_its_words() -> None:
    aligned = align(speech((AH, 0.4, None), (K, 0.4, None)), [(0, 2)])
    assert aligned is not None
    assert set(aligned.guide.tolist()) == {NO_TOKEN}


def test_nothing_to_say() -> None:
    assert align(speech((PAUSE, 0.4, None)), []) is None
