"""The admin port: channelz and reflection, which show operators the sockets, streams and calls of gRPC.

The port has no keys and no TLS, and shows the addresses of clients: it belongs on loopback or a network of operators.
"""

from typing import Any

import grpc
from grpc_reflection.v1alpha import reflection

CHANNELZ = "grpc.channelz.v1.Channelz"


class ChannelzMissing(Exception):
    """The package grpcio-channelz is not installed."""


def admin_server(address: str) -> tuple[Any, int]:
    """Return a server that is not started yet, and its port.

    Raises ChannelzMissing, or RuntimeError if it cannot bind the address.
    """
    try:
        from grpc_channelz.v1 import channelz
    except ImportError as error:
        raise ChannelzMissing("an admin port needs grpcio-channelz: pip install 'sonorant-server[channelz]'") from error
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    channelz.add_channelz_servicer(server)
    reflection.enable_server_reflection((CHANNELZ, reflection.SERVICE_NAME), server)
    return server, server.add_insecure_port(address)
