"""`Explain` lists all faults of a config at once, each with its field."""

from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2

from sonorant.tts.v1 import explain_pb2, synthesis_pb2
from tests.service.fake_engine import FakeEngine
from tests.service.harness import served


def fields(response: explain_pb2.ExplainResponse) -> list[str]:
    found = []
    for status in response.errors:
        request = error_details_pb2.BadRequest()
        named = [each.field for detail in status.details if detail.Unpack(request) for each in request.field_violations]
        found.append(named[0] if named else grpc.StatusCode(_code(status.code)).name)
    return found


def _code(number: int) -> Any:
    return next(code.value for code in grpc.StatusCode if code.value[0] == number)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            {"speed": 9, "audio": {"sample_rate_hz": 7}, "sampling": {"temperature": -1}, "language": "klingon"},
            {"config.speed", "config.audio.sample_rate_hz", "config.sampling.temperature", "config.language"},
        ),
        ({"voice": {"voice_id": "nobody"}, "volume_gain_db": 99}, {"NOT_FOUND", "config.volume_gain_db"}),
        ({"pronunciations": {"a": ""}, "speed": 9}, {"config.pronunciations", "config.speed"}),
        ({"speed": 1.5}, set()),
    ],
)
async def test_all_faults_are_told(config: dict[str, Any], expected: set[str]) -> None:
    async with served(FakeEngine()) as server:
        request = explain_pb2.ExplainRequest(config=synthesis_pb2.SynthesisConfig(**config), text="Hello.")
        found = fields(await server.stub.Explain(request))
    assert {field.partition("[")[0] for field in found} == expected and len(found) == len(expected)
