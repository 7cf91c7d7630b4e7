"""`Explain` against the real server: what it says is what the other methods do."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from google.protobuf import json_format
from google.rpc import code_pb2

from sonorant.tts.v1 import explain_pb2, synthesis_pb2, text_to_speech_service_pb2
from tests.e2e.server_process import ServerProcess
from tests.service.harness import Stub, details_of

TEXT = "  In 2026, there were 42 people.\n"
GIVEN = "In twenty twenty six, there were forty two people."


def request(text: str = TEXT, **config: object) -> explain_pb2.ExplainRequest:
    return explain_pb2.ExplainRequest(text=text, config=synthesis_pb2.SynthesisConfig(**config))


async def test_text_tokens_and_prompt_of_both_layouts(stub: Stub) -> None:
    whole = await stub.Explain(request())
    streaming = await stub.Explain(request(non_streaming_mode=False, language="en"))
    assert not whole.errors and not streaming.errors
    assert whole.text == streaming.text == GIVEN
    assert whole.tokens == streaming.tokens and "".join(token.text for token in whole.tokens) == GIVEN
    assert whole.non_streaming_mode and not streaming.non_streaming_mode
    assert (whole.language, streaming.language) == ("auto", "english")
    spoken = [token.text for token in whole.tokens] + ["tts_eos"]
    assert [row.text for row in whole.prompt[-len(spoken) - 1 :]] == [*spoken, "tts_pad"] and not whole.trailing
    assert [streaming.prompt[-1].text, *streaming.trailing] == spoken
    assert streaming.prompt[-1].codec == "codec_bos"
    assert {"think", "english", whole.voice_id} <= {row.codec for row in streaming.prompt}


async def test_settings_are_those_of_the_synthesis(stub: Stub) -> None:
    asked = request(speed=1.5, volume_gain_db=-3, sampling={"seed": 7, "top_k": 5}, audio={"sample_rate_hz": 8000})
    told = await stub.Explain(asked)
    made = await stub.Synthesize(text_to_speech_service_pb2.SynthesizeRequest(text=TEXT, config=asked.config))
    assert (told.voice_id, told.audio, told.sampling.seed) == (made.voice_id, made.format, made.seed)
    assert (told.speed, told.volume_gain_db, told.sampling.top_k) == (1.5, -3, 5)
    assert len(told.sampling.ListFields()) == len(synthesis_pb2.Sampling.DESCRIPTOR.fields)
    assert told.estimated_frames == pytest.approx(made.stats.codec_frames, rel=0.3)
    assert told.estimated_audio_ms == pytest.approx(made.stats.sent_ms, rel=0.3)
    limits = {limit.name: limit for limit in told.limits}
    assert list(limits) == ["text_chars", "positions", "frames", "response_bytes"]
    assert limits["text_chars"].value == len(TEXT) and limits["frames"].limit == told.sampling.max_frames
    assert limits["positions"].value == len(told.prompt) + told.estimated_frames
    assert limits["response_bytes"].value == pytest.approx(len(made.audio), rel=0.3)
    assert all(limit.value <= limit.limit for limit in told.limits)
    assert not (await stub.Explain(request())).sampling.HasField("seed")


async def test_all_refusals_at_once_and_what_is_known_nevertheless(stub: Stub) -> None:
    told = await stub.Explain(request("x" * 100_001, audio={"sample_rate_hz": 32_000}))
    assert [error.code for error in told.errors] == [code_pb2.INVALID_ARGUMENT] * 2
    fields = [details_of(error)["BadRequest"].field_violations[0].field for error in told.errors]
    assert fields == ["config.audio.sample_rate_hz", "text"]
    assert told.limits[0].value == 100_001 > told.limits[0].limit

    told = await stub.Explain(request("...", voice={"voice_id": "nobody"}))
    assert [error.code for error in told.errors] == [code_pb2.NOT_FOUND, code_pb2.INVALID_ARGUMENT]

    told = await stub.Explain(request("...", sampling={"do_sample": False, "top_k": 5}))
    assert [warning.code for warning in told.warnings] == ["SAMPLING_IGNORED"]
    assert [details_of(error)["ErrorInfo"].reason for error in told.errors] == ["NO_SPEAKABLE_TEXT"]
    assert told.voice_id and not told.prompt


@pytest.mark.parametrize("encoding", ["FLAC", "OPUS", "MULAW"])
async def test_every_encoding_can_be_asked_about(stub: Stub, encoding: str) -> None:
    told = await stub.Explain(request(audio={"encoding": f"AUDIO_ENCODING_{encoding}"}))
    assert not told.errors and told.limits[-1].value > 0


async def test_command_line(server: ServerProcess) -> None:
    async def explain(*arguments: str) -> tuple[int | None, str, str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sonorant.cli", "explain", "--server", server.address, *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        stdout, stderr = await process.communicate()
        return process.returncode, stdout.decode(), stderr.decode()

    status, stdout, stderr = await explain("Hello, world.", "--seed", "7", "--no-non-streaming-mode")
    assert (status, stderr) == (0, "")
    for line in (
        'text      "Hello, world."',
        "seed 7",
        '"Hello',
        "codec_bos",
        "after frame 0",
        "tts_eos",
        "text_chars",
    ):
        assert line in stdout
    status, stdout, stderr = await explain("Hello.", "--top-p", "2")
    assert status == 1 and "config.sampling.top_p" in stderr and "text_chars" in stdout
    status, stdout, _ = await explain("Hello.", "--json")
    assert status == 0 and json_format.ParseDict(json.loads(stdout), explain_pb2.ExplainResponse()).text == "Hello."


async def test_say_tells_that_instructions_have_no_effect(server: ServerProcess, tmp_path: Path) -> None:
    arguments = ("say", "Hello.", "--instructions", "sadly", "--wav", str(tmp_path / "out.wav"))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sonorant.cli", *arguments, "--server", server.address),
        stderr=asyncio.subprocess.PIPE,
    )
    _, stderr = await process.communicate()
    assert process.returncode == 0
    assert "warning: builtin_voice takes no instructions; they were left out" in stderr.decode()
