"""What a client has found at its server's address."""

import grpc

from sonorant.client import SpeechClient
from tests.service.harness import eventually


async def found_nobody(client: SpeechClient) -> None:
    """Until the client has tried to connect, and nobody listens there."""
    channel = client._connections.first_channel
    await eventually(channel.get_state, grpc.ChannelConnectivity.TRANSIENT_FAILURE)
