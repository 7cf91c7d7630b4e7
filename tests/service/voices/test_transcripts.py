import pytest

from sonorant.engine import RecordingInfo
from sonorant.service.errors import InvalidField
from sonorant.service.voices.transcripts import check_transcript

# What was said, and how long it sounds and lasts in ms, in public test recordings: of LibriVox and of playing cards
# (CMU Sphinx), of digits (TIDIGITS), and the prompts of F5-TTS and of CosyVoice.
REAL = [
    (
        "and mister john dashwood had then leisure to consider how much there might be prudently in his power to do "
        "for them",
        4760,
        7100,
    ),
    ("he was not an ill disposed young man", 2000, 2990),
    ("unless to be rather cold hearted and rather selfish is to be ill disposed", 3600, 5300),
    ("had he married a more a amiable woman he might have been made still more respectable than he was", 4340, 6050),
    ("he might even have been made amiable himself", 2380, 3290),
    ("ten of clubs", 660, 1095),
    ("four queen of clubs", 1220, 1960),
    ("seven of clubs", 900, 1538),
    ("five five", 640, 1554),
    ("eight of spades four of clubs seven of hearts", 2000, 3502),
    ("go forward ten meters", 1520, 2786),
    ("two nine three four zero", 1260, 2400),
    ("Some call me nature, others call me mother nature.", 2940, 5333),
    ("对，这就是我，万人敬仰的太乙真人。", 4920, 6760),
    ("希望你以后能够做的比我还好呦。", 2520, 3480),
]


def recording(speech_ms: int, duration_ms: int) -> RecordingInfo:
    return RecordingInfo(duration_ms, -20.0, 24_000, 1, speech_ms)


@pytest.mark.parametrize(("transcript", "speech_ms", "duration_ms"), REAL)
def test_real_pairs_are_taken(transcript: str, speech_ms: int, duration_ms: int) -> None:
    check_transcript(transcript, recording(speech_ms, duration_ms), "transcript")
    check_transcript(transcript, recording(2 * speech_ms, 6 * duration_ms), "transcript")  # slow, and with pauses
    check_transcript(transcript, recording(speech_ms // 2, duration_ms // 2), "transcript")  # as if in a hurry


@pytest.mark.parametrize(
    ("transcript", "speech_ms", "duration_ms"),
    [
        ("Let me look.", 2800, 4500),
        ("and mister john", REAL[0][1], REAL[0][2]),
        ("had he married", REAL[3][1], REAL[3][2]),
        ("对，这就", REAL[-2][1], REAL[-2][2]),
        ("...", 1200, 2000),
    ],
)
def test_the_first_words_only_are_refused_with_both_figures(transcript: str, speech_ms: int, duration_ms: int) -> None:
    with pytest.raises(
        InvalidField, match=rf"takes \d\.\d s at most, .* there are {speech_ms / 1000:.1f} s of sound"
    ) as caught:
        check_transcript(transcript, recording(speech_ms, duration_ms), "reference.transcript")
    assert caught.value.field == "reference.transcript"
    assert caught.value.reason == "TRANSCRIPT_DOES_NOT_FIT"


@pytest.mark.parametrize("transcript", ["A whole page of words, and then some more. " * 12, "这是一整页的文字。" * 12])
def test_more_than_anybody_could_say_is_refused_with_both_figures(transcript: str) -> None:
    with pytest.raises(InvalidField, match=r"takes \d+\.\d s at least, but the recording lasts 3\.0 s"):
        check_transcript(transcript, recording(2000, 3000), "transcript")


@pytest.mark.parametrize(
    ("transcript", "speech_ms"),
    [
        ("1990", 2500),  # nineteen hundred and ninety
        ("$25", 2500),
        ("BBC, U.S.", 4000),
        ("สวัสดีครับ", 3000),
        ("مرحبا بك", 2500),
        ("नमस्ते", 1200),
        ("안녕하세요", 3000),
        ("Привет, как дела?", 2500),
    ],
)
def test_signs_may_be_words_and_each_script_has_its_own_pace(transcript: str, speech_ms: int) -> None:
    check_transcript(transcript, recording(speech_ms, 2 * speech_ms), "transcript")


def test_where_pauses_cannot_be_told_no_word_is_too_few() -> None:
    check_transcript("Hello.", recording(0, 20_000), "transcript")
