"""Voices of every kind through a real server with real workers: official parity, hostile uploads, kills."""

import asyncio
import functools
import io
import json
import os
import signal
import struct
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import soundfile

from sonorant.client import InvalidRequest, ServerUnavailable, SpeechClient, SpeechError, synthesis_config, voice_mix
from sonorant.tts.v1.synthesis_pb2 import SynthesisConfig
from sonorant.tts.v1.text_to_speech_service_pb2 import GetCapabilitiesRequest, SynthesizeRequest
from sonorant.tts.v1.voice_pb2 import Voice
from tests.e2e.server_process import ServerProcess, scrape
from tests.parity.make_codec_goldens import CASES, GOLDENS, MAX_FRAMES, SIZES, STRIDE, write_recording
from tests.service.harness import Stub, config, say, speak
from tests.tiny_checkpoint import write_tiny_checkpoint

SIZE = "projected"
TASKS = ("custom_voice", "voice_design", "base")
GREEDY = {"do_sample": False, "subtalker_do_sample": False, "max_frames": MAX_FRAMES}
CONSENT = "A synthetic tone."
CLONES = [index for index, case in enumerate(CASES) if case["sizes"] == SIZE and case["task"] == "base"]
DESIGNS = [index for index, case in enumerate(CASES) if case["sizes"] == SIZE and case["task"] == "voice_design"]
PRESETS = [index for index, case in enumerate(CASES) if case["sizes"] == SIZE and case["task"] == "custom_voice"]
NUM_UPLOADED_RATES = 40


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("voices")
    models = {task: write_tiny_checkpoint(root / task, task, **SIZES[SIZE]) for task in TASKS}
    return models | {"root": root, "kept": root / "kept"}


def arguments(folders: dict[str, Path], *tasks: str) -> list[str]:
    models = [part for task in tasks for part in ("--model", str(folders[task]))]
    room = ("--num-slots", "4", "--max-queued-streams", "8")  # for twelve
    return [*models, "--device", "cpu", "--voices-dir", str(folders["kept"]), *room]


@pytest.fixture(scope="module")
def server(folders: dict[str, Path]) -> Iterator[ServerProcess]:
    with ServerProcess(folders["root"] / "log", *arguments(folders, *TASKS)) as process:
        yield process


@pytest.fixture
async def client(server: ServerProcess) -> AsyncIterator[SpeechClient]:
    async with SpeechClient(server.address) as client:
        yield client


@pytest.fixture
async def stub(server: ServerProcess) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(server.address) as channel:
        yield Stub(channel)


def synthesis(index: int, voice: dict[str, Any]) -> dict[str, Any]:
    case = CASES[index]
    asked = {"voice": voice, "language": case["language"], "sampling": GREEDY}
    if case["non_streaming"] is not None:
        asked["non_streaming_mode"] = case["non_streaming"]
    return asked


def assert_official(pcm: bytes, index: int) -> None:
    """The official package's audio for the same checkpoint and request, greedy; other codes sound quite different."""
    with np.load(GOLDENS / "offline.npz") as golden:
        samples = np.frombuffer(pcm, "<i2").astype(np.float32) / 32767
        assert len(samples) == len(golden[f"{index}.codes"]) * 1920
        np.testing.assert_allclose(samples[::STRIDE], golden[f"{index}.samples"], rtol=0, atol=1.1e-3)


def recording(tmp_path: Path, index: int) -> bytes:
    return write_recording(tmp_path, CASES[index]["recording"]).read_bytes()


def wav(samples: Any, rate_hz: int = 24_000, **options: Any) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate_hz, **{"format": "WAV", "subtype": "PCM_16"} | options)
    return file.getvalue()


def tone(seconds: float, rate_hz: int = 24_000, level: float = 0.3) -> Any:
    t = np.arange(round(seconds * rate_hz)) / rate_hz
    return level * np.sin(1300 * t + 30 * np.sin(19 * t))


@pytest.mark.parametrize("index", CLONES)
async def test_clones_speak_as_the_official_package(
    stub: Any, client: SpeechClient, index: int, tmp_path: Path
) -> None:
    """With a transcript (in-context) or without (speaker embedding alone), sent along or kept, at once or by words."""
    reference = {"audio": recording(tmp_path, index), "transcript": CASES[index]["reference_text"]}
    asked = synthesis(index, {"reference": reference})
    response = await stub.Synthesize(SynthesizeRequest(text=CASES[index]["text"], config=asked))
    assert_official(response.audio, index)

    made = await client.create_voice(
        f"clone-{index}", reference=reference["audio"], transcript=reference["transcript"], consent=CONSENT
    )
    assert made.model == "base" and made.reference_audio_ms > 1000
    asked = synthesis(index, {"voice_id": f"clone-{index}"})
    response = await stub.Synthesize(SynthesizeRequest(text=CASES[index]["text"], config=asked))
    assert_official(response.audio, index)
    assert response.voice_id == f"clone-{index}"
    words = CASES[index]["text"].replace(" ", " \n").split("\n")
    transcript = await speak(stub, [config(**asked), *(say(word) for word in words)])
    assert_official(transcript.pcm["u1"], index)


@pytest.mark.parametrize("index", DESIGNS)
async def test_designs_speak_as_the_official_package(stub: Any, client: SpeechClient, index: int) -> None:
    design = CASES[index]["instruct"]
    made = await client.create_voice(f"design-{index}", design=design)
    assert made.model == "voice_design" and made.design == design
    for voice in ({"design": design}, {"voice_id": f"design-{index}"}):
        request = SynthesizeRequest(text=CASES[index]["text"], config=synthesis(index, voice))
        assert_official((await stub.Synthesize(request)).audio, index)


@pytest.mark.parametrize("index", PRESETS)
async def test_presets_speak_as_the_official_package(stub: Any, index: int) -> None:
    case = CASES[index]
    asked = synthesis(index, {"voice_id": case["speaker"]}) | {"instructions": case.get("instruct", "")}
    assert_official((await stub.Synthesize(SynthesizeRequest(text=case["text"], config=asked))).audio, index)


async def test_a_clone_s_budget_says_what_its_recording_took_once(client: SpeechClient) -> None:
    asked = synthesis_config(reference=wav(tone(1.7)), transcript="hello world again", max_frames=4)
    first, again = [(await client.synthesize("hello", asked)).stats.first_audio_budget for _ in range(2)]
    assert first.recording_decode_ms > 0 and first.recording_encode_ms > 0 and first.recording_wait_ms >= 0
    assert not (again.recording_wait_ms or again.recording_decode_ms or again.recording_encode_ms)
    assert first.opening_ms > 0 and again.opening_ms > 0


async def test_twelve_new_recordings_at_once_are_all_spoken(client: SpeechClient) -> None:
    def clone(number: int) -> SynthesisConfig:
        return synthesis_config(reference=wav(tone(1.2 + number / 100)), transcript="hello world again", max_frames=4)

    clips = await asyncio.gather(*(client.synthesize("hello", clone(number)) for number in range(12)))
    assert all(len(clip.audio) for clip in clips)


async def test_mixes(client: SpeechClient, tmp_path: Path) -> None:
    for name, index in (("anna", CLONES[0]), ("ben", CLONES[1])):
        await client.create_voice(name, reference=recording(tmp_path, index), consent=CONSENT)

    async def spoken(**voice: Any) -> Any:
        response = await client.synthesize("hello world", synthesis_config(**voice, seed=7, max_frames=8))
        return np.frombuffer(response.audio, "<i2").astype(np.int32)

    def same(one: Any, other: Any) -> bool:
        """But for the rounding of batches of different sizes; other codes sound quite different."""
        return len(one) == len(other) and bool(np.abs(one - other).max() <= 2)

    anna, ben, vivian, ryan = [await spoken(voice=name) for name in ("anna", "ben", "vivian", "ryan")]
    assert not same(anna, ben) and not same(vivian, ryan)
    for spherical in (False, True):
        assert same(await spoken(mix=voice_mix({"anna": 1, "ben": 0}, spherical=spherical)), anna)
        assert same(await spoken(mix=voice_mix({"anna": 0, "ben": 2}, spherical=spherical)), ben)
        half = voice_mix({"anna": 1, "ben": 1}, spherical=spherical)
        between = await spoken(mix=half)
        assert not same(between, anna) and not same(between, ben)
        await client.create_voice(f"mix-{spherical}".lower(), mix=half)
        assert same(await spoken(voice=f"mix-{spherical}"), between)
    assert same(await spoken(mix=voice_mix({"vivian": 1, "ryan": 0})), vivian)
    await client.create_voice("duet", mix=voice_mix({"vivian": 1, "ryan": 1}))
    duet = await spoken(voice="duet")
    assert not same(duet, vivian) and not same(duet, ryan)
    with pytest.raises(InvalidRequest, match="cannot mix"):
        await client.create_voice("odd", mix=voice_mix({"vivian": 1, "anna": 1}))


async def test_instructions_that_a_checkpoint_does_not_take_are_a_warning(client: SpeechClient) -> None:
    await client.create_voice("calm", reference=wav(tone(1.5)), consent=CONSENT)
    asked = synthesis_config(voice="calm", instructions="sadly", seed=7, max_frames=4)
    response = await client.synthesize("hello", asked)
    assert [warning.code for warning in response.warnings] == ["INSTRUCTIONS_IGNORED"]


async def test_what_the_server_can_do(stub: Any) -> None:
    capabilities = await stub.GetCapabilities(GetCapabilitiesRequest())
    assert capabilities.supports_cloning and capabilities.supports_design


NUM_HOSTILE = 18


@functools.cache
def hostile() -> list[tuple[bytes, str]]:
    """Made when they are wanted, which takes a second."""
    return [
        (b"", "RECORDING_UNREADABLE"),
        (b"\x00" * 1000, "RECORDING_UNREADABLE"),
        (b"PK\x03\x04" + b"\x00" * 1000, "RECORDING_UNREADABLE"),
        (b"RIFF", "RECORDING_UNREADABLE"),
        (b"OggS" + b"\xff" * 5000, "RECORDING_UNREADABLE"),
        (b"ID3" + b"\xff" * 5000, "RECORDING_UNREADABLE"),
        (b"fLaC" + b"\x00" * 5000, "RECORDING_UNREADABLE"),
        (wav(tone(2))[:1000], "RECORDING_TOO_SHORT"),
        (wav(tone(2), format="FLAC")[:3000], ""),  # unreadable or too short, as libsndfile has it
        (wav(np.zeros(1)), "RECORDING_TOO_SHORT"),
        (wav(tone(0.5)), "RECORDING_TOO_SHORT"),
        (wav(tone(31, 8000), 8000), "RECORDING_TOO_LONG"),
        (wav(np.zeros(36_000)), "RECORDING_SILENT"),
        (wav(np.sign(tone(2))), "RECORDING_CLIPPED"),
        (wav(np.zeros(3600 * 8000), 8000, format="FLAC"), "RECORDING_TOO_LONG"),  # an hour in 30 kB
        (wav(tone(2, 4000), 4000), "RECORDING_UNSUPPORTED"),
        (wav(tone(2, 400_000), 400_000), "RECORDING_UNSUPPORTED"),
        (wav(np.full(48_000, np.nan), subtype="FLOAT"), ""),
    ]


@pytest.mark.parametrize("number", range(NUM_HOSTILE))
async def test_hostile_uploads_are_refused_by_what_is_wrong(client: SpeechClient, number: int) -> None:
    assert len(hostile()) == NUM_HOSTILE
    audio, reason = hostile()[number]
    for validate_only in (False, True):
        with pytest.raises(InvalidRequest) as caught:
            await client.create_voice("hostile", reference=audio, consent=CONSENT, validate_only=validate_only)
        assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
        assert caught.value.reason == reason or (not reason and caught.value.reason.startswith("RECORDING_"))
        assert "reference.audio" in caught.value.fields, caught.value.fields
    assert "hostile" not in [voice.voice_id for voice in await client.voices()]


def ten_hours() -> tuple[bytes, bytes]:
    """A WAV and a FLAC file of a second whose headers say ten hours."""
    num_samples = 36_000 * 24_000
    riff, flac = bytearray(wav(tone(1))), bytearray(wav(tone(1), format="FLAC"))
    riff[4:8], riff[40:44] = struct.pack("<I", num_samples * 2 + 36), struct.pack("<I", num_samples * 2)
    (packed,) = struct.unpack(">Q", flac[18:26])  # of STREAMINFO; the last 36 bits are the number of samples
    flac[18:26] = struct.pack(">Q", packed >> 36 << 36 | num_samples)
    return bytes(riff), bytes(flac)


async def test_lengths_by_header_and_rates_by_the_dozen_cost_no_memory(
    client: SpeechClient, server: ServerProcess
) -> None:
    await client.create_voice("first", reference=wav(tone(1.5)), consent=CONSENT)  # the encoder is up
    before = _memory_mb(server)
    riff, flac = ten_hours()
    made = await client.create_voice(reference=riff, consent=CONSENT, ttl_s=1)
    assert made.reference_audio_ms == 1000, "what is there counts"
    with pytest.raises(InvalidRequest) as caught:
        await client.create_voice(reference=flac, consent=CONSENT)
    assert caught.value.reason == "RECORDING_TOO_LONG" and "36000.0 s" in str(caught.value)
    for number in range(NUM_UPLOADED_RATES):
        rate_hz = 8000 + 997 * number
        voice = await client.create_voice(reference=wav(tone(1.2, rate_hz), rate_hz), consent=CONSENT, ttl_s=1)
        assert abs(voice.reference_audio_ms - 1200) <= 1
    assert _memory_mb(server) - before < 200


def _memory_mb(server: ServerProcess) -> float:
    """Resident, of the server and all it has started."""
    statuses = [Path(f"/proc/{pid}/status").read_text() for pid in (server.process.pid, *server.child_ids())]
    resident = [line for status in statuses for line in status.splitlines() if line.startswith("VmRSS")]
    return sum(int(line.split()[1]) for line in resident) / 1024


async def test_recordings_in_hand_are_counted(server: ServerProcess, client: SpeechClient) -> None:
    async def until(num_recordings: int) -> None:
        async with asyncio.timeout(60):
            while (await asyncio.to_thread(scrape, server))["tts_queued_recordings", ""] != num_recordings:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    await client.create_voice(reference=wav(tone(1.2)), consent=CONSENT, ttl_s=1)  # the encoder is up
    (encoder,) = [pid for pid, name in server.child_ids().items() if name == "sonorant-encode"]
    os.kill(encoder, signal.SIGSTOP)
    made = [client.create_voice(reference=wav(tone(seconds)), consent=CONSENT, ttl_s=1) for seconds in (2, 3, 4)]
    making = asyncio.gather(*made)
    await until(3)
    os.kill(encoder, signal.SIGCONT)
    assert [voice.reference_audio_ms for voice in await making] == [2000, 3000, 4000]
    await until(0)


async def test_large_recordings_come_in_pieces(client: SpeechClient) -> None:
    audio = wav(tone(25, 96_000), 96_000, subtype="PCM_24")
    assert 7_000_000 < len(audio) < 10 * 1024 * 1024
    voice = await client.create_voice("large", reference=audio, consent=CONSENT)
    assert voice.reference_audio_ms == 25_000
    with pytest.raises(SpeechError, match="more than 10485760 bytes"):
        await client.create_voice("larger", reference=audio * 2, consent=CONSENT)


@pytest.mark.slow
async def test_the_command_line_makes_mixes_moves_and_deletes_voices(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "tone.wav").write_bytes(wav(tone(2)))
    np.save(tmp_path / "voice.npy", np.ones(32, np.float32))

    async def voices(*arguments: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "sonorant.cli", "voices", "--server", server.address, *arguments]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        stdout, stderr = await process.communicate()
        return process.returncode or 0, stdout.decode().strip(), stderr.decode().strip()

    source = ["--reference", str(tmp_path / "tone.wav")]
    status, _, complaint = await voices("create", "cli-tone", *source)
    assert status == 1 and "consent" in complaint
    told = (0, "the voice can be created: 2000 ms of reference", "")
    assert await voices("create", "cli-tone", *source, "--check") == told, "nobody is cloned, so nobody must agree"
    agreed = [*source, "--transcript", "hello", "--consent", CONSENT, "--label", "made=cli", "--speaks", "english"]
    assert await voices("create", "cli-tone", *agreed, "--check") == told
    assert await voices("create", "cli-tone", *agreed) == (0, "cli-tone", "")
    embedded = ["--embedding", str(tmp_path / "voice.npy"), "--label", "made=cli", "--request-id", "cli-1"]
    status, minted, _ = await voices("create", *embedded)
    assert (await voices("create", *embedded))[1] == minted and minted.startswith("voice-")
    assert (await voices("mix", "cli-mix", "cli-tone=0.5", f"{minted}=0.5", "--spherical", "--label", "made=cli"))[
        0
    ] == 0
    status, listed, _ = await voices("list", "--label", "made=cli")
    rows = [line.split() for line in listed.splitlines()]
    assert sorted(rows) == sorted([["cli-mix", "mixed"], ["cli-tone", "cloned", "english"], [minted, "embedded"]])
    assert (await voices("--kind", "preset", "list"))[1].split()[::6]
    shown = json.loads((await voices("show", "cli-tone"))[1])
    assert (shown["transcript"], shown["consent"], shown["reference_audio_ms"]) == ("hello", CONSENT, 2000)
    file = str(tmp_path / "tone.voice")
    assert await voices("export", "cli-tone", file) == (0, "", "")
    status, _, complaint = await voices("export", minted, file)
    assert status == 1 and "exists" in complaint
    assert (await voices("import", file, "cli-copy"))[:2] == (0, "cli-copy")
    for name in ("cli-tone", "cli-copy", "cli-mix", minted):
        assert (await voices("delete", name))[0] == 0
    status, _, complaint = await voices("delete", "cli-tone")
    assert status == 1 and "no voice 'cli-tone'" in complaint
    assert (await voices("delete", "cli-tone", "--allow-missing"))[0] == 0
    status, _, complaint = await voices("delete", "vivian")
    assert status == 1 and "preset" in complaint


@pytest.mark.slow
@pytest.mark.rare
@pytest.mark.slow
async def test_acknowledged_voices_survive_a_kill_of_the_server(folders: dict[str, Path], tmp_path: Path) -> None:
    """And one kept by a server with a Base checkpoint is refused, with the reason, by one without."""
    kept = folders | {"kept": tmp_path / "kept"}
    made: dict[str, Voice] = {}
    enough = asyncio.Event()
    with ServerProcess(tmp_path / "log", *arguments(kept, "base")) as process:
        async with SpeechClient(process.address) as client:

            async def make() -> None:
                while True:
                    if len(made) >= 30:
                        enough.set()
                    voice = await client.create_voice(reference=wav(tone(1.2)), transcript="hello", consent=CONSENT)
                    made[voice.voice_id] = voice

            makers = [asyncio.create_task(make()) for _ in range(4)]
            await asyncio.wait_for(enough.wait(), 60)
            process.process.send_signal(signal.SIGKILL)
            ends = await asyncio.gather(*makers, return_exceptions=True)
            assert [type(end) for end in ends] == [ServerUnavailable] * 4, ends
    with ServerProcess(tmp_path / "log2", *arguments(kept, "custom_voice")) as process:
        async with SpeechClient(process.address) as client:
            there = {voice.voice_id: voice for voice in await client.voices(kind="cloned")}
            assert made.items() <= there.items()
            assert len(there) - len(made) <= len(makers), "voices that were not acknowledged"
            files = {await client.export_voice(voice_id) for voice_id in there}
            assert len(files) == len(there) and all(len(file) > 500 for file in files)
            with pytest.raises(InvalidRequest) as caught:
                await client.synthesize("hello", synthesis_config(voice=next(iter(made))))
            assert caught.value.reason == "VOICE_OF_OTHER_CHECKPOINT" and "made with base" in str(caught.value)
