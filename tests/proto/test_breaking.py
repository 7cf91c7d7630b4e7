"""The guard of the contract, on copies of the protos with one thing changed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROTO = Path(__file__).parents[2] / "proto"
OPTIONAL_LEAD = "optional uint32 max_lead_ms = 4;"


@pytest.fixture
def proto(tmp_path: Path) -> Path:
    return shutil.copytree(PROTO, tmp_path / "proto", ignore=shutil.ignore_patterns("*_pb2*", "__pycache__"))


def edit(proto: Path, file: str, old: str, new: str) -> None:
    path = proto / "sonorant" / "tts" / "v1" / file
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


def guard(proto: Path, *arguments: str) -> tuple[int, str]:
    run = subprocess.run([sys.executable, proto / "breaking.py", *arguments], capture_output=True, text=True)
    return run.returncode, run.stderr


def test_the_contract_keeps_what_was_released(proto: Path) -> None:
    assert guard(proto) == (0, "")


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        ("speak.proto", "  EndUtterance end = 5;\n", "", "field SpeakRequest.5: gone; it was end"),
        ("speak.proto", "EndUtterance end = 5;", "EndUtterance end = 15;", "field SpeakRequest.5: gone"),
        ("speak.proto", "EndUtterance end = 5;", "EndUtterance stop = 5;", "is stop stop"),
        (
            "speak.proto",
            "string text = 3;",
            "bytes text = 3;",
            "text text LABEL_OPTIONAL TYPE_STRING oneof payload",
        ),
        ("speak.proto", OPTIONAL_LEAD, OPTIONAL_LEAD.removeprefix("optional "), "field SpeakConfig.4: was"),
        ("speak.proto", OPTIONAL_LEAD, OPTIONAL_LEAD.replace("optional", "repeated"), "LABEL_REPEATED"),
        ("speak.proto", "COMMIT_MODE_MANUAL = 3", "COMMIT_MODE_MANUAL = 4", "value CommitMode.3: gone"),
        ("speak.proto", "COMMIT_MODE_MANUAL = 3", "COMMIT_MODE_BY_HAND = 3", "is COMMIT_MODE_BY_HAND"),
        ("text_to_speech_service.proto", "rpc GetCapabilities(", "rpc Capabilities(", "GetCapabilities: gone"),
        ("text_to_speech_service.proto", "(stream SpeakRequest)", "(SpeakRequest)", "TextToSpeechService.Speak: was"),
        ("voice_service.proto", "service VoiceService", "service Voices", "service VoiceService: gone"),
    ],
)
def test_what_breaks_a_client_is_named_and_cannot_be_released(
    proto: Path, file: str, old: str, new: str, told: str
) -> None:
    edit(proto, file, old, new)
    for arguments in ((), ("--release",)):
        code, errors = guard(proto, *arguments)
        assert code == 1
        assert told in errors


def test_what_is_added_breaks_nothing_and_is_held_to_once_it_is_released(proto: Path) -> None:
    edit(
        proto, "speak.proto", "message Flush {", "message Added { string name = 1; }\nmessage Flush { Added added = 9;"
    )
    edit(
        proto, "voice_service.proto", "service VoiceService {", "service VoiceService { rpc New(Voice) returns (Voice);"
    )
    assert guard(proto) == (0, "")
    assert guard(proto, "--release") == (0, "")
    edit(proto, "speak.proto", "string name = 1; }", "}")
    code, errors = guard(proto)
    assert code == 1
    assert "field Added.1: gone" in errors


def test_what_moves_to_another_file_is_gone_from_this_one(proto: Path) -> None:
    edit(proto, "speak.proto", "message EndUtterance {}", "")
    edit(proto, "synthesis.proto", "message UtteranceStarted {", "message EndUtterance {}\nmessage UtteranceStarted {")
    code, errors = guard(proto)
    assert code == 1
    assert "speak.proto: message EndUtterance: gone" in errors
