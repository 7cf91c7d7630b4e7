"""Every field of a request about voices is checked, and named when it is wrong."""

from dataclasses import replace
from typing import Any

import pytest

from sonorant.service.errors import InvalidField
from sonorant.service.voices.requests import (
    VoiceFilter,
    check_create,
    check_imported,
    check_list,
    check_request,
    to_proto,
)
from sonorant.tts.v1 import voice_pb2
from sonorant.tts.v1.voice_service_pb2 import CreateVoiceRequest, ImportVoiceRequest, ListVoicesRequest
from tests.service.voice_values import about

NOW_S = 1_700_000_000.0
ANY = VoiceFilter(50, "", voice_pb2.VOICE_KIND_UNSPECIFIED, "", {}, ("english", "german"))


def created(**values: Any) -> CreateVoiceRequest:
    return CreateVoiceRequest(**{"reference": {"audio": b"x"}, "consent": "Anna agreed"} | values)


def test_a_voice_about_which_everything_is_said() -> None:
    request = created(
        voice_id="anna-2",
        voice={"display_name": "Ännä", "description": "calm", "languages": ["english"], "labels": {"mood": "calm"}},
        ttl_seconds=60,
    )
    made = check_create(request, NOW_S)
    assert made.expire_s == NOW_S + 60 and made.create_s == NOW_S and made.kind == "cloned"
    voice = to_proto(replace(made, transcript="hello", reference_audio_ms=1500, model="base"))
    assert voice.voice_id == "anna-2" and voice.kind == voice_pb2.VOICE_KIND_CLONED
    assert (voice.display_name, voice.description, [*voice.languages]) == ("Ännä", "calm", ["english"])
    assert (dict(voice.labels), voice.consent, voice.transcript) == ({"mood": "calm"}, "Anna agreed", "hello")
    assert (voice.reference_audio_ms, voice.model) == (1500, "base")
    assert voice.expire_time.seconds - voice.create_time.seconds == 60


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ({"reference": {"audio": b"x"}}, "cloned"),
        ({"design": "deep"}, "designed"),
        ({"speaker_embedding": {"values": [1.0]}}, "embedded"),
        ({"mix": {}}, "mixed"),
    ],
)
def test_kinds_by_source(source: dict[str, Any], kind: str) -> None:
    made = check_create(CreateVoiceRequest(consent="yes", **source), NOW_S)
    assert (made.kind, made.voice_id, made.expire_s) == (kind, "", None)
    assert not to_proto(made).HasField("expire_time")


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (CreateVoiceRequest(), "source"),
        (created(consent=""), "consent"),
        (created(consent=" \n"), "consent"),
        (created(consent="x" * 1025), "consent"),
        (created(voice_id="Anna"), "voice_id"),
        (created(voice_id="an"), "voice_id"),
        (created(voice_id="2anna"), "voice_id"),
        (created(voice_id="a" * 64), "voice_id"),
        (created(voice_id="anna\n"), "voice_id"),
        (created(voice={"voice_id": "anna"}), "voice.voice_id"),
        (created(voice={"kind": voice_pb2.VOICE_KIND_CLONED}), "voice.kind"),
        (created(voice={"model": "x"}), "voice.model"),
        (created(voice={"display_name": "x" * 257}), "voice.display_name"),
        (created(voice={"display_name": "a\x00b"}), "voice.display_name"),
        (created(voice={"description": "x" * 1025}), "voice.description"),
        (created(voice={"languages": ["x"] * 33}), "voice.languages"),
        (created(voice={"languages": [""]}), "voice.languages"),
        (created(voice={"labels": {str(i): "" for i in range(33)}}), "voice.labels"),
        (created(voice={"labels": {"": "x"}}), "voice.labels"),
        (created(voice={"labels": {"x" * 65: ""}}), "voice.labels"),
        (created(voice={"labels": {"x": "y" * 257}}), "voice.labels"),
        (created(ttl_seconds=2**32 - 1), "ttl_seconds"),
    ],
)
def test_what_is_wrong_is_named(request_: CreateVoiceRequest, field: str) -> None:
    with pytest.raises(InvalidField) as caught:
        check_create(request_, NOW_S)
    assert caught.value.field == field


def test_an_imported_voice_is_a_new_one_and_trusted_in_nothing() -> None:
    old = about("anna", create_s=1.0, expire_s=2.0, labels={"mood": "calm"}, fingerprint="f")
    new = check_imported(ImportVoiceRequest(voice_id="berta", ttl_seconds=5), old, NOW_S)
    assert new == replace(old, voice_id="berta", create_s=NOW_S, expire_s=NOW_S + 5)
    assert check_imported(ImportVoiceRequest(), old, NOW_S).voice_id == "anna"
    for bad in (
        {"voice_id": "../../etc"},
        {"consent": ""},
        {"display_name": "x" * 10_000},
        {"languages": ("",)},
        {"labels": {"": "x"}},
        {"description": "\x07"},
        {"transcript": "x" * 4097},
        {"fingerprint": "x" * 257},
    ):
        with pytest.raises(InvalidField) as caught:
            check_imported(ImportVoiceRequest(), replace(old, **bad), NOW_S)
        assert caught.value.field == "voice_file"


def test_filters() -> None:
    anna = about("anna", languages=("english",), labels={"mood": "calm", "age": "old"})
    assert ANY.fits(anna)
    assert replace(ANY, kind=voice_pb2.VOICE_KIND_CLONED).fits(anna)
    assert not replace(ANY, kind=voice_pb2.VOICE_KIND_PRESET).fits(anna)
    assert replace(ANY, language="en-GB").fits(anna) and not replace(ANY, language="german").fits(anna)
    assert replace(ANY, language="de").fits(about("berta")), "who names no language speaks all that are served"
    assert not replace(ANY, language="french").fits(about("berta"))
    assert replace(ANY, labels={"mood": "calm"}).fits(anna)
    assert not replace(ANY, labels={"mood": "calm", "age": "young"}).fits(anna)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"page_size": 1001}, "page_size"),
        ({"kind": 9}, "kind"),
        ({"page_token": "x"}, "page_token"),
        ({"labels": {"": "x"}}, "labels"),
    ],
)
def test_lists_that_cannot_be(values: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidField) as caught:
        check_list(ListVoicesRequest(**values), ("ada",), ("english",))
    assert caught.value.field == field


def test_request_ids() -> None:
    assert check_request("", CreateVoiceRequest()) is None
    first = check_request("r", created(voice={"labels": {"a": "1", "b": "2"}}))
    assert first is not None
    assert first == check_request("r", created(voice={"labels": {"b": "2", "a": "1"}}))
    assert first != check_request("r", created(voice={"labels": {"a": "1", "b": "3"}}))
    for bad in ("x" * 65, "a\nb"):
        with pytest.raises(InvalidField, match="printable"):
            check_request(bad, CreateVoiceRequest())
