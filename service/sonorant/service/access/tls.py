"""gRPC's credentials of the server, from files that may be replaced while it runs."""

import ssl
from typing import Any

import grpc

from sonorant.hosting.tls import Latest, TlsError, TlsFiles


def server_credentials(files: TlsFiles) -> Any:
    """Return the server's credentials. Raises TlsError."""
    latest = Latest(files, _configuration)  # gRPC asks for it in its own thread, one handshake at a time
    return grpc.dynamic_ssl_server_credentials(
        latest.value, latest.if_changed, require_client_authentication=files.client_ca is not None
    )


def _configuration(files: TlsFiles) -> Any:
    files.load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))  # gRPC would find errors only at the first handshake
    try:
        certificate, key, client_ca = (
            path and path.read_bytes() for path in (files.certificate, files.key, files.client_ca)
        )
    except OSError as error:
        raise TlsError(f"{error.filename}: {error.strerror}") from error
    return grpc.ssl_server_certificate_configuration([(key, certificate)], root_certificates=client_ca)
