"""`sonorant-server doctor`: checks whether the server would run here with these settings, and what to improve."""

import asyncio
import importlib.util
import json
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import version

import grpc

from sonorant.engine import EngineError, sized, start_here
from sonorant.engine.tools.doctor import Examined, Finding, Verdict, finding
from sonorant.hosting.addresses import CannotListen, listening_socket
from sonorant.hosting.tls import TlsError, has_expired
from sonorant.service.access.api_keys import ApiKeys, ApiKeysError
from sonorant.service.access.receipt_key import ReceiptKeyError, read_key
from sonorant.service.access.tls import server_credentials
from sonorant.service.database import without_password
from sonorant.service.errors import VoiceStoreFailed
from sonorant.service.settings import ServiceConfig
from sonorant.service.voices.opening import NoVoicesHere, check_writable, open_to_read

ENGINE_TIMEOUT_S = 120.0
_EXPECTED = (ApiKeysError, CannotListen, ReceiptKeyError, TlsError)
_LOOPBACK = ("127.", "localhost", "[::1]")


def run(config: ServiceConfig, num_processes: int) -> int:
    """Print each finding as it is made, and return the exit status: 1 if one is a fault, else 0.

    `num_processes`: server processes that these settings give on this machine.
    """
    failed = False
    for found in examine(config, num_processes):
        failed = failed or found.verdict == Verdict.FAIL
        print(f"{found.verdict:4}  {found.subject:10}  {found.text}", flush=True)
    return int(failed)


def examine(config: ServiceConfig, num_processes: int) -> Iterator[Finding]:
    engine_is_fit = True
    try:
        config = config.with_sizes(sized(config.engines))
    except EngineError as error:  # the card cannot be used, or has too little memory
        engine_is_fit = False
        yield Finding(Verdict.FAIL, "gpu", str(error))
    else:
        for found in _engine(config):
            engine_is_fit = engine_is_fit and found.verdict != Verdict.FAIL
            yield found
    yield finding("processes", _processes, num_processes)
    for subject, check in (("standby", _standby), ("grpc", _grpc), ("opus", _opus)):
        yield finding(subject, check, config)
    for flag in ("--listen", "--metrics-listen", "--admin-listen"):
        if (address := getattr(config, flag[2:].replace("-", "_"))) is not None:
            yield finding("port", _port, (address, flag), _EXPECTED)
    for subject, check in (("tls", _tls), ("api keys", _keys), ("voices", _voices)):
        yield finding(subject, check, config, _EXPECTED)
    if engine_is_fit:
        yield finding("utterance", lambda config: asyncio.run(_utterance(config)), config)
    else:
        yield Finding(Verdict.FAIL, "utterance", "not tried, because of the faults above")


def _engine(config: ServiceConfig) -> Iterator[Finding]:
    """Yield the engine's own findings. It runs in a separate process, as this one must not import torch."""
    command = [sys.executable, "-m", "sonorant.engine.tools.doctor"]
    try:
        result = subprocess.run(
            command,
            input=pickle.dumps(Examined(config.engines, config.mps)),
            capture_output=True,
            check=False,
            timeout=ENGINE_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        yield Finding(Verdict.FAIL, "engine", f"no answer from torch or the driver within {ENGINE_TIMEOUT_S:g} s")
        return
    for line in result.stdout.splitlines():
        found = json.loads(line)
        yield Finding(Verdict(found["verdict"]), found["subject"], found["text"])
    if result.returncode:
        last_words = result.stderr.decode(errors="replace").strip().splitlines()[-1:]
        yield Finding(Verdict.FAIL, "engine", f"the check ended with status {result.returncode}: {last_words}")


def _processes(num_processes: int) -> tuple[Verdict, str]:
    if num_processes == 1:
        return Verdict.PASS, "one server process (--processes)"
    return Verdict.PASS, f"{num_processes} server processes before the same workers (--processes)"


def _standby(config: ServiceConfig) -> tuple[Verdict, str]:
    if num_spare := sum(engine.is_standby for engine in config.engines):
        return Verdict.PASS, f"spare worker pairs, which take over at once: {num_spare} (--standby)"
    text = "none: while killed workers are replaced, listeners wait; --standby 1 keeps a spare pair in the GPU's memory"
    return Verdict.PASS, text


def _grpc(_: ServiceConfig) -> tuple[Verdict, str]:
    return Verdict.PASS, f"grpcio {grpc.__version__}, protobuf {version('protobuf')}"


def _opus(_: ServiceConfig) -> tuple[Verdict, str]:
    if importlib.util.find_spec("av") is None:
        return Verdict.WARN, "PyAV is missing, so Opus is not served; pip install 'sonorant-server[opus]'"
    return Verdict.PASS, f"PyAV {version('av')}"


def _port(told: tuple[str, str]) -> tuple[Verdict, str]:
    address, flag = told
    with closing(listening_socket(address, flag)):
        return Verdict.PASS, f"{address} is free ({flag})"


def _tls(config: ServiceConfig) -> tuple[Verdict, str]:
    if config.tls is not None:
        server_credentials(config.tls)
        if has_expired(config.tls.certificate):
            return Verdict.FAIL, f"{config.tls.certificate} has expired, so clients refuse it; replace it"
        mutual = ", clients need a certificate" if config.tls.client_ca else ""
        return Verdict.PASS, f"certificate and key belong together{mutual}"
    if config.listen.startswith(_LOOPBACK):
        return Verdict.PASS, "off, on loopback only"
    return Verdict.WARN, f"off: text and keys cross the network to {config.listen} unencrypted"


def _keys(config: ServiceConfig) -> tuple[Verdict, str]:
    read_key(config.receipt_key_file)
    if config.api_keys is not None:
        keys = ApiKeys(config.api_keys)
        return Verdict.PASS, f"{len(keys)} in {config.api_keys}"
    if config.listen.startswith(_LOOPBACK):
        return Verdict.PASS, "off, on loopback only"
    return Verdict.WARN, f"off: anyone who reaches {config.listen} may call"


def _voices(config: ServiceConfig) -> tuple[Verdict, str]:
    if config.voices_url is None and config.voices_dir is None:
        return Verdict.PASS, "none are kept; to keep those that callers make, set --voices-dir or --voices-url"
    place = without_password(config.voices_url) if config.voices_url else str(config.voices_dir)
    try:
        if config.voices_dir is not None:
            check_writable(config.voices_dir)
        with closing(open_to_read(config.voices_url or str(config.voices_dir))) as store:
            num_voices, damages = store.check()
    except NoVoicesHere:
        return Verdict.PASS, f"none yet in {place}, which the server will make"
    except VoiceStoreFailed as error:
        return Verdict.FAIL, f"{place}: {error.__cause__ or error}"
    if damages:
        more = f" (and {len(damages) - 1} more)" if len(damages) > 1 else ""
        return Verdict.FAIL, f"{place}: {damages[0]}{more}"
    return Verdict.PASS, f"{num_voices} of at most {config.max_voices} in {place}"


async def _utterance(config: ServiceConfig) -> tuple[Verdict, str]:
    start_s = time.monotonic()
    engine = await start_here(config.engines, mps=config.mps)
    try:
        loaded_s = time.monotonic() - start_s
        await engine.rehearse()
        spoken = max(await engine.rehearse(), key=lambda each: each.total_s / each.num_frames)  # warm by now
        audio_s = spoken.num_frames / engine.info.frame_rate_hz
    finally:
        await engine.close()
    rtf = spoken.total_s / audio_s
    text = (
        f"{audio_s:.1f} s of audio, the first after {spoken.first_audio_s * 1000:.0f} ms, RTF {rtf:.2f}; "
        f"loaded in {loaded_s:.1f} s"
    )
    if len(config.engines) > 1:
        text = f"from the slowest of {len(config.engines)} worker pairs {text}"
    if rtf >= 1:
        return Verdict.WARN, f"{text}; too slow for playback without gaps"
    return Verdict.PASS, text
