"""Certificates from PEM files, which may be replaced while the gateway runs: each handshake uses the latest."""

import asyncio
import logging
import os
import ssl
from pathlib import Path

log = logging.getLogger(__name__)

RELOAD_S = 1.0


class TlsError(Exception):
    """The files cannot be used; the message says which and why."""


class Certificates:
    def __init__(self, certificate: Path, key: Path) -> None:
        """Raises TlsError."""
        self._files = certificate, key
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load()
        self._version = self._stat()

    async def follow(self) -> None:
        while True:
            await asyncio.sleep(RELOAD_S)
            if (version := self._stat()) != self._version:
                self._version = version
                try:
                    self._load()
                    log.info("the TLS certificate was read again")
                except TlsError as error:
                    log.error("the new TLS certificate cannot be used, keeping the old one: %s", error)

    def _load(self) -> None:
        try:
            self.context.load_cert_chain(*self._files)
        except (OSError, ssl.SSLError) as error:
            names = ", ".join(map(str, self._files))
            raise TlsError(f"{names}: {error.strerror or error}; certificate and key must be PEM files") from error

    def _stat(self) -> object:
        try:
            return [(status.st_mtime_ns, status.st_ino, status.st_size) for status in map(os.stat, self._files)]
        except OSError:
            return None
