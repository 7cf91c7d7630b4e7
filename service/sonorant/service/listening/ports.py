"""The ports of the server. They are opened before the model is loaded, so that a port in use is reported at once."""

import resource
from typing import Any

import grpc

from sonorant.hosting.addresses import CannotListen
from sonorant.service.calls.requests import MAX_MESSAGE_BYTES
from sonorant.service.listening.accepting import AcceptingServer
from sonorant.service.operations.admin_port import admin_server
from sonorant.service.settings import ServiceConfig

MAX_RECEIVED_BYTES = 2 * MAX_MESSAGE_BYTES  # messages between the two limits get our error instead of gRPC's
MAX_METADATA_BYTES = 8 * 1024
MAX_SENT_BYTES = 4 * 1024 * 1024
SPARE_CALLS = 100  # calls per connection beyond the sessions: health checks, and calls that are about to be refused
MAX_PENDING_CALLS = 10_000  # each takes about 15 KB, and later 0.1 ms of the event loop
KEPT_FILES = 256  # file descriptors that connections cannot take, kept for restarted workers

OPTIONS = (
    ("grpc.max_receive_message_length", MAX_RECEIVED_BYTES),
    ("grpc.max_send_message_length", MAX_SENT_BYTES),
    # A compressed request is cheap to send and blocks the event loop for everybody: 15 KB of gzip for 40 to 100 ms.
    ("grpc.compression_enabled_algorithms_bitset", 1 << grpc.Compression.NoCompression.value),
    # By default gRPC refuses calls with more than 8 KiB of metadata at random, and all with more than 16 KiB.
    ("grpc.max_metadata_size", MAX_METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
    # By default gRPC ends new calls of any caller at random once a thousand wait to be accepted.
    ("grpc.server.max_pending_requests", MAX_PENDING_CALLS),
    ("grpc.server.max_pending_requests_hard_limit", MAX_PENDING_CALLS),
    # Connections that do not finish the TLS handshake, or stay idle, are closed. Clients reconnect by themselves.
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 600_000),
    # Dead peers are noticed within 30 s; live ones may ping as often as every 5 s.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
)


def grpc_server(config: ServiceConfig, interceptor: grpc.aio.ServerInterceptor) -> AcceptingServer:
    """Return a server without a port, which is not started yet."""
    options = (
        *OPTIONS,
        ("grpc.so_reuseport", 1),  # the owner has made sure that no other server is on the port
        ("grpc.max_concurrent_streams", config.max_sessions + SPARE_CALLS),
        ("grpc.max_allowed_incoming_connections", _max_connections(config.max_sessions)),
        ("grpc.enable_channelz", int(config.admin_listen is not None)),
    )
    return AcceptingServer([interceptor], options)


def open_port(server: Any, address: str, credentials: grpc.ServerCredentials | None) -> int:
    """Let a server that is not started yet listen, and return its port. Raises CannotListen."""
    try:
        if credentials is not None:
            return int(server.add_secure_port(address, credentials))
        return int(server.add_insecure_port(address))
    except RuntimeError as error:
        raise CannotListen(address, error, "--listen") from error


def admin_port(address: str) -> tuple[Any, int]:
    """Return a server that is not started yet, and its port. Raises CannotListen or ChannelzMissing."""
    try:
        return admin_server(address)
    except RuntimeError as error:
        raise CannotListen(address, error, "--admin-listen") from error


def _max_connections(max_sessions: int) -> int:
    """Return two connections per session plus spare ones, or fewer if the process may not open as many files."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, min(2 * max_sessions + SPARE_CALLS, allowed - KEPT_FILES))
