"""The references of `make docs` name all that is public. CI builds the site, where a link that leads nowhere fails."""

import re
import sys
from pathlib import Path

import sonorant.client
from sonorant.tts.v1 import speak_pb2, text_to_speech_service_pb2, voice_service_pb2

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "site"))
import grpc_reference  # noqa: E402
import python_reference  # noqa: E402


def test_the_python_reference_has_what_the_client_exports() -> None:
    page = python_reference.page()
    named = set(re.findall(r"^::: [\w.]*?(\w+)$", page, re.MULTILINE)) | set(re.findall(r"\[(\w+)\]\(grpc", page))
    assert set(sonorant.client.__all__) <= named


def test_the_grpc_reference_has_every_call_and_field_with_its_comment() -> None:
    page = grpc_reference.page()
    for module in (text_to_speech_service_pb2, voice_service_pb2):
        for service in module.DESCRIPTOR.services_by_name.values():
            assert f"### {service.name}" in page
            for method in service.methods:
                assert f"**{method.name}** (" in page
    for message in speak_pb2.DESCRIPTOR.message_types_by_name.values():
        (table,) = re.findall(rf"^### {message.name}$(.*?)(?=^###? |\Z)", page, re.MULTILINE | re.DOTALL)
        for field in message.fields:
            assert f"| `{field.name}` = {field.number} | " in table
    assert "| optional uint32 | How much audio the server may send ahead of what the listener has heard" in page
    assert "map of string to string" in page


def test_the_site_shows_every_page() -> None:
    listed = set(re.findall(r"- (?:\w[\w ]*: )?([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert {page.name for page in ROOT.glob("docs/*.md")} <= listed
