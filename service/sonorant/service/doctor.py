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
from sonorant.engine.tools.doctor import Examined, Finding, Verdict
from sonorant.hosting.addresses import CannotListen, listening_socket
from sonorant.hosting.tls import TlsError
from sonorant.service.access.api_keys import ApiKeys, ApiKeysError
from sonorant.service.access.receipt_key import ReceiptKeyError, read_key
from sonorant.service.access.tls import server_credentials
from sonorant.service.database import without_password
from sonorant.service.errors import VoiceStoreFailed
from sonorant.service.settings import ServiceConfig
from sonorant.service.voices.opening import NoVoicesHere, check_writable, open_to_read

ENGINE_TIMEOUT_S = 120.0
_LOOPBACK = ("127.", "localhost", "[::1]")


def run(config: ServiceConfig, num_processes: int) -> int:
    """Print each finding as it is made, and return the exit status: 1 if one is a fault, else 0.

    `num_processes`: server processes that these settings give on this machine.
    """
    failed = False
    for finding in examine(config, num_processes):
        failed = failed or finding.verdict == Verdict.FAIL
        print(f"{finding.verdict:4}  {finding.subject:10}  {finding.text}", flush=True)
    return int(failed)


def examine(config: ServiceConfig, num_processes: int) -> Iterator[Finding]:
    engine_is_fit = True
    try:
        config = config.with_sizes(sized(config.engines))
    except EngineError as error:  # the card cannot be used, or has too little memory
        engine_is_fit = False
        yield Finding(Verdict.FAIL, "gpu", str(error))
    else:
        for finding in _engine(config):
            engine_is_fit = engine_is_fit and finding.verdict != Verdict.FAIL
            yield finding
    yield _processes(num_processes)
    yield _standby(config)
    yield Finding(Verdict.PASS, "grpc", f"grpcio {grpc.__version__}, protobuf {version('protobuf')}")
    yield _opus()
    yield from _ports(config)
    yield _tls(config)
    yield _keys(config)
    yield _voices(config)
    if engine_is_fit:
        yield asyncio.run(_utterance(config))
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


def _processes(num_processes: int) -> Finding:
    if num_processes == 1:
        return Finding(Verdict.PASS, "processes", "one server process (--processes)")
    return Finding(Verdict.PASS, "processes", f"{num_processes} server processes before the same workers (--processes)")


def _standby(config: ServiceConfig) -> Finding:
    if num_spare := sum(engine.is_standby for engine in config.engines):
        return Finding(Verdict.PASS, "standby", f"spare worker pairs, which take over at once: {num_spare} (--standby)")
    text = "none: while killed workers are replaced, listeners wait; --standby 1 keeps a spare pair in the GPU's memory"
    return Finding(Verdict.PASS, "standby", text)


def _opus() -> Finding:
    if importlib.util.find_spec("av") is None:
        return Finding(
            Verdict.WARN, "opus", "PyAV is missing, so Opus is not served; pip install 'sonorant-server[opus]'"
        )
    return Finding(Verdict.PASS, "opus", f"PyAV {version('av')}")


def _ports(config: ServiceConfig) -> Iterator[Finding]:
    for flag, address in (
        ("--listen", config.listen),
        ("--metrics-listen", config.metrics_listen),
        ("--admin-listen", config.admin_listen),
    ):
        if address is None:
            continue
        try:
            with closing(listening_socket(address, flag)):
                yield Finding(Verdict.PASS, "port", f"{address} is free ({flag})")
        except CannotListen as error:
            yield Finding(Verdict.FAIL, "port", str(error))


def _tls(config: ServiceConfig) -> Finding:
    if config.tls is not None:
        try:
            server_credentials(config.tls)
        except TlsError as error:
            return Finding(Verdict.FAIL, "tls", str(error))
        mutual = ", clients need a certificate" if config.tls.client_ca else ""
        return Finding(Verdict.PASS, "tls", f"certificate and key belong together{mutual}")
    if config.listen.startswith(_LOOPBACK):
        return Finding(Verdict.PASS, "tls", "off, on loopback only")
    return Finding(Verdict.WARN, "tls", f"off: text and keys cross the network to {config.listen} unencrypted")


def _keys(config: ServiceConfig) -> Finding:
    try:
        read_key(config.receipt_key_file)
    except ReceiptKeyError as error:
        return Finding(Verdict.FAIL, "api keys", str(error))
    if config.api_keys is not None:
        try:
            keys = ApiKeys(config.api_keys)
        except ApiKeysError as error:
            return Finding(Verdict.FAIL, "api keys", str(error))
        return Finding(Verdict.PASS, "api keys", f"{len(keys)} in {config.api_keys}")
    if config.listen.startswith(_LOOPBACK):
        return Finding(Verdict.PASS, "api keys", "off, on loopback only")
    return Finding(Verdict.WARN, "api keys", f"off: anyone who reaches {config.listen} may call")


def _voices(config: ServiceConfig) -> Finding:
    if config.voices_url is None and config.voices_dir is None:
        return Finding(
            Verdict.PASS, "voices", "none are kept; to keep those that callers make, set --voices-dir or --voices-url"
        )
    place = without_password(config.voices_url) if config.voices_url else str(config.voices_dir)
    try:
        if config.voices_dir is not None:
            check_writable(config.voices_dir)
        with closing(open_to_read(config.voices_url or str(config.voices_dir))) as store:
            num_voices, damages = store.check()
    except NoVoicesHere:
        return Finding(Verdict.PASS, "voices", f"none yet in {place}, which the server will make")
    except VoiceStoreFailed as error:
        return Finding(Verdict.FAIL, "voices", f"{place}: {error.__cause__ or error}")
    if damages:
        more = f" (and {len(damages) - 1} more)" if len(damages) > 1 else ""
        return Finding(Verdict.FAIL, "voices", f"{place}: {damages[0]}{more}")
    return Finding(Verdict.PASS, "voices", f"{num_voices} of at most {config.max_voices} in {place}")


async def _utterance(config: ServiceConfig) -> Finding:
    start_s = time.monotonic()
    try:
        engine = await start_here(config.engines, mps=config.mps)
        try:
            loaded_s = time.monotonic() - start_s
            await engine.rehearse()
            spoken = max(await engine.rehearse(), key=lambda each: each.total_s / each.num_frames)  # warm by now
            audio_s = spoken.num_frames / engine.info.frame_rate_hz
        finally:
            await engine.close()
    except EngineError as error:
        return Finding(Verdict.FAIL, "utterance", str(error))
    rtf = spoken.total_s / audio_s
    text = (
        f"{audio_s:.1f} s of audio, the first after {spoken.first_audio_s * 1000:.0f} ms, RTF {rtf:.2f}; "
        f"loaded in {loaded_s:.1f} s"
    )
    if len(config.engines) > 1:
        text = f"from the slowest of {len(config.engines)} worker pairs {text}"
    if rtf >= 1:
        return Finding(Verdict.WARN, "utterance", f"{text}; too slow for playback without gaps")
    return Finding(Verdict.PASS, "utterance", text)
