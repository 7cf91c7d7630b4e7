import base64
import io
import wave
from pathlib import Path

import pytest

from sonorant.bench.http_speech import voice_fields
from sonorant.bench.voices import Voices, voices_in


def test_recordings_that_are_sent_once_all_differ() -> None:
    voices = Voices("clone", recording_s=1.5)
    found = [voices.recording(number).audio for number in range(200)]
    assert len(set(found)) == 200
    assert voices.recording(7).audio == found[7], "every process makes the same"
    assert Voices("clone", recording_s=1.5, salt=1).recording(7).audio != found[7], "every run makes others"
    assert not any(voices.was_sent(number) for number in range(200))


def test_they_are_wav_files_of_several_rates_and_lengths() -> None:
    rates, seconds = set(), []
    for number in range(20):
        recording = Voices("clone").recording(number)
        with wave.open(io.BytesIO(recording.audio)) as file:
            rates.add(file.getframerate())
            seconds.append(file.getnframes() / file.getframerate())
        assert 2 <= len(recording.transcript.split()) / seconds[-1] <= 3
    assert len(rates) == 5
    assert 3 <= min(seconds) < 6 and 12 < max(seconds) <= 15


def test_a_rotation_comes_again() -> None:
    voices = Voices("clone", num_recordings=3, recording_s=1)
    assert voices.recording(1) == voices.recording(4) != voices.recording(2)
    assert [voices.was_sent(number) for number in range(5)] == [False, False, False, True, True]
    assert Voices().was_sent(5) is None


def test_recordings_of_a_folder(tmp_path: Path) -> None:
    for name, data in (("b.wav", b"b"), ("a.flac", b"a"), ("c.doc", b"c")):
        (tmp_path / name).write_bytes(data)
    (tmp_path / "a.txt").write_text("what a says\n")
    voices = Voices("clone", files=voices_in(tmp_path))
    assert [voices.recording(number).audio for number in range(3)] == [b"a", b"b", b"a"]
    assert [voices.recording(number).transcript for number in range(2)] == ["what a says", ""]
    assert [voices.was_sent(number) for number in range(3)] == [False, False, True]
    with pytest.raises(ValueError, match=r"has no recordings \(\.wav"):
        voices_in(tmp_path.parent)


def test_openai_fields_are_those_of_vllm_omni() -> None:
    clone = Voices("clone", recording_s=1)
    fields = voice_fields(clone, 3)
    assert fields["task_type"] == "Base" and fields["ref_text"] == clone.recording(3).transcript
    assert base64.b64decode(str(fields["ref_audio"]).removeprefix("data:audio/wav;base64,")) == clone.recording(3).audio
    assert voice_fields(Voices("design", design="calm"), 0) == {"task_type": "VoiceDesign", "instructions": "calm"}
    assert voice_fields(Voices(name="anna"), 0) == {"voice": "anna"}
