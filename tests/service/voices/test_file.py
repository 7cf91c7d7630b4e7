"""Voices as files: what was packed comes back, and a file from anywhere is either a whole voice or refused."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from sonorant.service.voices.file import (
    MAX_FILE_BYTES,
    NotAVoiceFile,
    VoiceAbout,
    VoiceTensors,
    about_to_json,
    pack,
    unpack,
)
from tests.service.voice_values import about, tensors

KEY = "sonorant.voice.v1"
EMBEDDING = np.ones(8, np.float32)
CODES = np.ones((3, 4), np.int16)
GOOD = pack(about("anna"), tensors(1))


def made_of(arrays: dict[str, Any], **values: Any) -> bytes:
    data: bytes = save(arrays, {KEY: json.dumps({"voice_id": "anna", "kind": "cloned", "create_s": 1.0} | values)})
    return data


@given(
    st.builds(
        VoiceAbout,
        voice_id=st.text(),
        kind=st.just("cloned"),
        create_s=st.floats(0, 1e10),
        expire_s=st.none() | st.floats(0, 1e10),
        display_name=st.text(),
        languages=st.lists(st.text()).map(tuple),
        labels=st.dictionaries(st.text(), st.text()),
        consent=st.text(),
        transcript=st.text(min_size=1),
        reference_audio_ms=st.integers(0, 2**32 - 1),
    ),
    st.integers(0, 9),
)
def test_what_is_packed_comes_back(about: VoiceAbout, seed: int) -> None:
    packed = tensors(seed)
    data = pack(about, packed)
    assert data == pack(about, packed), "the same voice is the same file"
    unpacked_about, unpacked = unpack(data)
    assert unpacked_about == about
    for name in ("speaker_embedding", "reference_codes"):
        np.testing.assert_array_equal(getattr(unpacked, name), getattr(packed, name))


def test_kinds_without_codes_or_embedding() -> None:
    for kind, values, parts in (
        ("designed", {"design": "deep", "transcript": ""}, VoiceTensors()),
        ("mixed", {"transcript": ""}, VoiceTensors(EMBEDDING)),
        ("cloned", {"transcript": ""}, VoiceTensors(EMBEDDING)),
    ):
        packed = about("anna", kind=kind, **values)
        assert unpack(pack(packed, parts))[0] == packed


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "no safetensors file"),
        (b"RIFF" * 100, "no safetensors file"),
        (GOOD[:-1], "no safetensors file"),
        (GOOD + b"x", "no safetensors file"),
        (b"\xff" * 7 + b"\x7f" + b"{}" * 100, "no safetensors file"),
        (b"x" * (MAX_FILE_BYTES + 1), "over the limit"),
        (save({"speaker_embedding": EMBEDDING}), "metadata has no"),
        (save({"speaker_embedding": EMBEDDING}, {"format": "pt"}), "metadata has no"),
        (save({"speaker_embedding": EMBEDDING}, {KEY: "{"}), "not valid JSON"),
        (save({"speaker_embedding": EMBEDDING}, {KEY: "[" * 10_000}), "not valid JSON"),
        (save({"speaker_embedding": EMBEDDING}, {KEY: "[]"}), "not a JSON object"),
        (made_of({"speaker_embedding": EMBEDDING}, display_name="\ud800"), "not valid JSON"),
        (save({"speaker_embedding": EMBEDDING}, {KEY: '{"kind": "cloned"}'}), "must say voice_id"),
        (made_of({"speaker_embedding": EMBEDDING}, owner="bob"), "and nothing but"),
        (made_of({"speaker_embedding": EMBEDDING}, kind="preset"), "kind is 'preset'"),
        (made_of({"speaker_embedding": EMBEDDING}, labels=["x"]), "labels has a wrong type"),
        (made_of({"speaker_embedding": EMBEDDING}, languages="english"), "languages has a wrong type"),
        (made_of({"speaker_embedding": EMBEDDING}, reference_audio_ms=-1), "reference_audio_ms has a wrong type"),
        (made_of({"speaker_embedding": EMBEDDING}, expire_s="never"), "expire_s has a wrong type"),
        (made_of({"speaker_embedding": EMBEDDING}, create_s=10**400), "create_s has a wrong type"),
        (made_of({"speaker_embedding": EMBEDDING}, create_s=float("nan")), "create_s has a wrong type"),
        (made_of({"speaker_embedding": EMBEDDING, "weights": EMBEDDING}), "tensor 'weights'"),
        (made_of({"speaker_embedding": EMBEDDING.astype(np.float64)}), "float64"),
        (made_of({"speaker_embedding": EMBEDDING[:0]}), "float32 \\[0\\]"),
        (made_of({"speaker_embedding": EMBEDDING[None]}), "1 axes"),
        (made_of({"speaker_embedding": EMBEDDING * np.float32(np.nan)}), "not finite"),
        (made_of({"speaker_embedding": EMBEDDING, "reference_codes": CODES}), "belong together"),
        (made_of({"speaker_embedding": EMBEDDING}, transcript="hello"), "belong together"),
        (
            made_of({"speaker_embedding": EMBEDDING, "reference_codes": CODES}, transcript="hello", kind="mixed"),
            "belong together",
        ),
        (
            made_of(
                {"speaker_embedding": EMBEDDING, "reference_codes": np.ones((5000, 1), np.int16)}, transcript="hello"
            ),
            "5000 reference frames",
        ),
        (
            made_of({"speaker_embedding": EMBEDDING}, labels={str(n): "" for n in range(40_000)}),
            "a header of over 262144 bytes",
        ),
        (made_of({}), "speaker embedding"),
        (made_of({"speaker_embedding": EMBEDDING}, kind="designed", design="x"), "speaker embedding"),
        (made_of({}, kind="designed"), "a designed voice needs its description"),
        (made_of({"speaker_embedding": EMBEDDING}, design="deep"), "a designed voice needs its description"),
        (made_of({"speaker_embedding": EMBEDDING}, consent="of somebody else"), "it has no checksum"),
    ],
)
def test_what_is_no_whole_voice_is_refused(data: bytes, what: str) -> None:
    with pytest.raises(NotAVoiceFile, match=what):
        unpack(data)


@given(st.binary(max_size=300), st.integers(0, len(GOOD)))
def test_no_bytes_do_harm(noise: bytes, position: int) -> None:
    for data in (noise, GOOD[:position] + noise + GOOD[position + len(noise) :]):
        try:
            unpack(data)
        except NotAVoiceFile as error:
            assert str(error)


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 7))
def test_a_flipped_bit_is_noticed(position: int, bit: int) -> None:
    damaged = bytearray(GOOD)
    damaged[position] ^= 1 << bit
    try:
        unpacked = unpack(bytes(damaged))
    except NotAVoiceFile:
        return
    assert pack(*unpacked) == GOOD, "white space of the header, say, means nothing"


def test_a_damaged_file_is_called_that() -> None:
    with pytest.raises(NotAVoiceFile, match="damaged"):
        unpack(GOOD[:-1] + bytes([GOOD[-1] ^ 1]))


def test_text_in_many_scripts_stays_readable() -> None:
    assert "声" in about_to_json(about("anna", display_name="声"))
