"""What a new connection costs: TLS handshakes, full and resumed, and the first call of a gRPC channel.

python -m tests.measure.handshakes [--rounds N]
"""

import argparse
import asyncio
import ssl
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import trustme

from sonorant.hosting.tls import TlsFiles
from sonorant.service.listening.accepting import NUM_ACCEPTORS
from sonorant.tts.v1.text_to_speech_service_pb2 import GetCapabilitiesRequest
from sonorant.tts.v1.text_to_speech_service_pb2_grpc import TextToSpeechServiceStub
from tests.service.certificates import Certificates
from tests.service.fake_engine import FakeEngine
from tests.service.harness import served


def handshake(
    server: ssl.SSLContext, client: ssl.SSLContext, session: ssl.SSLSession | None
) -> tuple[float, float, ssl.SSLSession | None, bool]:
    """Make one in memory: processor seconds of server and client, the session for the next, whether it resumed."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname="localhost", session=session)
    spent = {ours: 0.0, theirs: 0.0}

    def step(end: ssl.SSLObject, act: Callable[[], object]) -> bool:
        began_s = time.process_time()
        try:
            act()
        except ssl.SSLWantReadError:
            return False
        finally:
            spent[end] += time.process_time() - began_s
        return True

    while not (step(theirs, theirs.do_handshake) & step(ours, ours.do_handshake)):
        pass
    ours.write(b"x")  # with which TLS 1.3 sends its tickets
    step(theirs, lambda: theirs.read(1))
    return spent[ours], spent[theirs], theirs.session, bool(theirs.session_reused)


def in_memory(rounds: int) -> None:
    for name, kind in (("ECDSA P-256", trustme.KeyType.ECDSA), ("RSA 2048", trustme.KeyType.RSA)):
        authority = trustme.CA(key_type=kind)
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost", key_type=kind).configure_cert(server)
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        authority.configure_trust(client)
        session: ssl.SSLSession | None = None
        for what, resumes in (("full", False), ("resumed", True)):
            costs = []
            for _ in range(rounds):
                ours, theirs, session, reused = handshake(server, client, session if resumes else None)
                assert reused == resumes
                costs.append((ours * 1e3, theirs * 1e3))
            here, there = (statistics.mean(each) for each in zip(*costs, strict=True))
            print(f"{name}, {what}: {here:.2f} ms of processor time at the server, {there:.2f} at the client")


async def over_grpc(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        certificates = Certificates(Path(folder))
        files: TlsFiles = certificates.files()
        for name, settings, credentials in (
            ("plain", {}, None),
            ("TLS", {"tls": files}, certificates.of_client()),
        ):
            async with served(FakeEngine(), credentials, acceptors=NUM_ACCEPTORS, **settings) as server:
                times_ms = []
                for _ in range(rounds):
                    began_s = time.perf_counter()
                    options = [("grpc.use_local_subchannel_pool", 1)]
                    channel = (
                        grpc.aio.insecure_channel(server.address, options)
                        if credentials is None
                        else grpc.aio.secure_channel(server.address, credentials, options)
                    )
                    async with channel:
                        await TextToSpeechServiceStub(channel).GetCapabilities(GetCapabilitiesRequest())
                        times_ms.append((time.perf_counter() - began_s) * 1e3)
                print(f"gRPC, {name}: new channel and first call {statistics.median(times_ms):.1f} ms (p50)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    args = parser.parse_args()
    in_memory(args.rounds)
    asyncio.run(over_grpc(args.rounds))


if __name__ == "__main__":
    main()
