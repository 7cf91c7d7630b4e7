"""Certificates for tests of TLS."""

import os
from datetime import datetime
from pathlib import Path
from typing import Any

import grpc
import trustme

from sonorant.hosting.tls import TlsFiles


class Certificates:
    """An authority of one's own, and PEM files of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.authority.cert_pem.write_to_path(folder / "ca.pem")
        self.issue()

    def issue(self, *names: str, not_after: datetime | None = None) -> None:
        certificate = self.authority.issue_cert(*(names or ("127.0.0.1", "localhost")), not_after=not_after)
        # Replaced at once, as a certificate manager does it.
        for name, blobs in (("cert.pem", certificate.cert_chain_pems), ("key.pem", [certificate.private_key_pem])):
            (self.folder / "new").write_bytes(b"".join(blob.bytes() for blob in blobs))
            os.replace(self.folder / "new", self.folder / name)

    def files(self, *, mutual: bool = False) -> TlsFiles:
        return TlsFiles(self.folder / "cert.pem", self.folder / "key.pem", self.folder / "ca.pem" if mutual else None)

    def of_client(self, *, mutual: bool = False) -> Any:
        if not mutual:
            return grpc.ssl_channel_credentials(self.authority.cert_pem.bytes())
        certificate = self.authority.issue_cert("client")
        chain = b"".join(pem.bytes() for pem in certificate.cert_chain_pems)
        return grpc.ssl_channel_credentials(self.authority.cert_pem.bytes(), certificate.private_key_pem.bytes(), chain)
