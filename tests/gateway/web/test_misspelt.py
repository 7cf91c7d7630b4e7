"""A misspelt field is named in a header, and breaks nothing."""

import pytest
from pydantic import BaseModel

from sonorant.gateway.cartesia.request import Generation
from sonorant.gateway.openai.request import SpeechRequest
from sonorant.gateway.web.json_input import MAX_LOOKED_AT, MISSPELT_HEADER, misspelt
from tests.gateway.harness import gateway
from tests.service.fake_engine import FakeEngine


@pytest.mark.parametrize(
    ("model", "names", "told"),
    [
        (SpeechRequest, ["input", "langauge"], "langauge: did you mean language?"),
        (SpeechRequest, ["input", "voice", "metadata", "x" * 41 + "language"], ""),
        (SpeechRequest, ["responseformat"], "responseformat: did you mean response_format?"),
        (Generation, ["trancript", "model_id"], "trancript: did you mean transcript?"),
        (SpeechRequest, ["langauge\r\nX-Other: 1", "längauge"], ""),
        (SpeechRequest, [*map(str, range(MAX_LOOKED_AT)), "langauge"], ""),
    ],
)
def test_what_is_told(model: type[BaseModel], names: list[str], told: str) -> None:
    assert misspelt(model, dict.fromkeys(names, "a")) == told


async def test_an_answer_and_a_refusal_name_the_nearest_field_and_nothing_else_changes() -> None:
    async with gateway(FakeEngine()) as door:

        async def post(path: str, **body: object) -> tuple[int, str | None, bytes]:
            async with door.http.post(path, json=body) as response:
                return response.status, response.headers.get(MISSPELT_HEADER), await response.read()

        speech = {"input": "ab", "response_format": "pcm", "seed": 1}
        status, told, audio = await post("/v1/audio/speech", **speech)
        assert (status, told) == (200, None)
        assert await post("/v1/audio/speech", **speech, sped=2) == (200, "sped: did you mean speed?", audio)
        status, told, _ = await post("/v1/audio/speech", inptu="ab")
        assert (status, told) == (400, "inptu: did you mean input?")
        status, told, _ = await post("/v1/audio/speech/batch", items=[{"input": "ab"}], langauge="english")
        assert (status, told) == (200, "langauge: did you mean language?")
