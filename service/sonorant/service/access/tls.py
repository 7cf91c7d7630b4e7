"""Server credentials from PEM files, which may be replaced while the server runs: each handshake uses the latest."""

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from sonorant.service.access.versions import version_of

log = logging.getLogger(__name__)


class TlsError(Exception):
    """The files cannot be used; the message says which and why."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    certificate: Path  # with its chain
    key: Path
    client_ca: Path | None = None  # if set, clients must have a certificate signed by it

    def paths(self) -> list[Path]:
        return [path for path in (self.certificate, self.key, self.client_ca) if path is not None]


def server_credentials(files: TlsFiles) -> Any:
    """Return the server's credentials. Raises TlsError."""
    latest = _Latest(files)
    return grpc.dynamic_ssl_server_credentials(
        latest.configuration, latest.if_changed, require_client_authentication=files.client_ca is not None
    )


class _Latest:
    """The latest configuration. gRPC asks for it in its own thread, one handshake at a time."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._version = version_of(files.paths())
        self.configuration = _load(files)

    def if_changed(self) -> Any:
        """Return the new configuration if the files have changed, or None to keep the one in use."""
        version = version_of(self._files.paths())
        if version == self._version:
            return None
        self._version = version
        try:
            configuration = _load(self._files)
        except TlsError as error:
            log.error("the changed TLS files cannot be used, the certificate in use stays: %s", error)
            return None
        log.info("the TLS certificate was read again")
        return configuration


def _load(files: TlsFiles) -> Any:
    """Read the files and check that they belong together; gRPC would find out only at the first handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(files.certificate, files.key)
        if files.client_ca is not None:
            context.load_verify_locations(files.client_ca)
        certificate, key, client_ca = (
            path and path.read_bytes() for path in (files.certificate, files.key, files.client_ca)
        )
    except (OSError, ssl.SSLError) as error:
        names = ", ".join(str(path) for path in files.paths())
        raise TlsError(f"{names}: {error.strerror or error}; certificates and their key must be PEM files") from error
    return grpc.ssl_server_certificate_configuration([(key, certificate)], root_certificates=client_ca)
