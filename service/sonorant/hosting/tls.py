"""Certificates in PEM files, which may be replaced while the process runs: each handshake uses the latest."""

import asyncio
import logging
import re
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic, TypeVar

from sonorant.hosting.versions import version_of

log = logging.getLogger(__name__)

T = TypeVar("T")
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\s", re.DOTALL)
# In DER: a sequence of two times, each UTCTime or GeneralizedTime in seconds and UTC, as RFC 5280 prescribes.
_TIME = rb"(?:\x17\x0d|\x18\x0f)(%b\d{12}(?:\d\d)?)Z"
_VALIDITY = re.compile(rb"\x30[\x1e-\x22]" + _TIME % b"?:" + _TIME % b"")
RELOAD_S = 1.0  # between looks


class TlsError(Exception):
    """The files cannot be used; the message says which and why."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    certificate: Path  # with its chain
    key: Path
    client_ca: Path | None = None  # if set, clients must have a certificate signed by it

    def paths(self) -> list[Path]:
        return [path for path in (self.certificate, self.key, self.client_ca) if path is not None]

    def load_into(self, context: ssl.SSLContext) -> None:
        """Raises TlsError, also if certificate and key do not belong together."""
        try:
            context.load_cert_chain(self.certificate, self.key)
            if self.client_ca is not None:
                context.load_verify_locations(self.client_ca)
        except (OSError, ssl.SSLError) as error:
            names = ", ".join(map(str, self.paths()))
            raise TlsError(
                f"{names}: {error.strerror or error}; certificates and their key must be PEM files"
            ) from error


def expires_s(certificate: Path) -> float:
    """Return the Unix time at which the first certificate of a PEM file expires; 0 if there is none to be read."""
    try:
        found = _PEM.search(certificate.read_text(encoding="ascii", errors="replace"))
        validity = _VALIDITY.search(ssl.PEM_cert_to_DER_cert(found[0])) if found else None
    except (OSError, ValueError):
        return 0.0
    if validity is None:
        return 0.0
    text = validity[1].decode()
    year = text[:-10] if len(text) > 12 else f"{20 if text < '5' else 19}{text[:2]}"  # RFC 5280, 4.1.2.5.1
    ends = datetime.strptime(year + text[-10:], "%Y%m%d%H%M%S")
    return ends.replace(tzinfo=UTC).timestamp()


def has_expired(certificate: Path) -> bool:
    return 0 < expires_s(certificate) < time.time()


class Latest(Generic[T]):
    """What is made of the files as they are now. If new ones cannot be used, the old ones stay."""

    def __init__(self, files: TlsFiles, make: Callable[[TlsFiles], T]) -> None:
        """`make` may raise TlsError, and so does this."""
        self._files = files
        self._make = make
        self._version = version_of(files.paths())
        self.value = make(files)
        self._warn()

    def if_changed(self) -> T | None:
        """Return the new value if the files have changed and can be used, else None."""
        version = version_of(self._files.paths())
        if version == self._version:
            return None
        self._version = version
        try:
            self.value = self._make(self._files)
        except TlsError as error:
            log.error("the changed TLS files cannot be used, the certificate in use stays: %s", error)
            return None
        log.info("the TLS certificate was read again")
        self._warn()
        return self.value

    def _warn(self) -> None:
        if has_expired(self._files.certificate):
            log.warning("%s has expired, so clients refuse it; replace it", self._files.certificate)


class ServerContext:
    """Python's TLS context of a server; `follow` keeps it up to date."""

    def __init__(self, files: TlsFiles) -> None:
        """Raises TlsError."""
        self._files = files
        self._on_read: Callable[[float], object] = lambda _: None
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._latest = Latest(files, self._load)

    def on_read(self, tell: Callable[[float], object]) -> None:
        """Tell now, and whenever the files were read again, when the certificate expires."""
        self._on_read = tell
        tell(expires_s(self._files.certificate))

    async def follow(self) -> None:
        while True:
            await asyncio.sleep(RELOAD_S)
            self._latest.if_changed()

    def _load(self, files: TlsFiles) -> ssl.SSLContext:
        files.load_into(self.context)  # which listening sockets hold already
        self._on_read(expires_s(files.certificate))
        return self.context
