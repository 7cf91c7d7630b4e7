"""channelz of a real server, on its own port."""

import grpc
import pytest
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc

from sonorant.hosting.addresses import CannotListen
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest
from tests.service.fake_engine import FakeEngine
from tests.service.harness import failure, served


async def test_channelz_counts_the_calls_of_the_server() -> None:
    async with served(FakeEngine(), admin_listen="127.0.0.1:0") as server:
        await server.stub.Synthesize(SynthesizeRequest(text="Hello"))
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.admin_port}") as channel:
            stub = channelz_pb2_grpc.ChannelzStub(channel)
            servers = (await stub.GetServers(channelz_pb2.GetServersRequest(start_server_id=0))).server
            busiest = max(servers, key=lambda each: each.data.calls_succeeded)
            assert busiest.data.calls_succeeded > 0
            request = channelz_pb2.GetServerSocketsRequest(server_id=busiest.ref.server_id)
            assert len((await stub.GetServerSockets(request)).socket_ref) == 1, "the connection of this test"
        public = channelz_pb2_grpc.ChannelzStub(server.channel)
        code, _, _ = await failure(public.GetServers(channelz_pb2.GetServersRequest()))
        assert code == grpc.StatusCode.UNIMPLEMENTED, "not where clients are"
        with pytest.raises(CannotListen, match="--admin-listen"):
            async with served(FakeEngine(), admin_listen=f"127.0.0.1:{server.admin_port}"):
                pass
