"""Certificates that are replaced: the latest that can be used is in use."""

import logging
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme

from sonorant.hosting.tls import Latest, ServerContext, TlsError, TlsFiles, expires_s
from tests.service.certificates import Certificates


def test_files_that_cannot_be_used_leave_the_ones_in_use(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    certificates = Certificates(tmp_path)
    files = certificates.files()

    def read(files: TlsFiles) -> bytes:
        files.load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        return files.certificate.read_bytes()

    caplog.set_level(logging.INFO, logger="sonorant.hosting")
    latest = Latest(files, read)
    first = latest.value
    assert latest.if_changed() is None and not caplog.messages
    files.certificate.write_text("damaged, and longer or shorter than it was")
    assert latest.if_changed() is None and latest.value == first
    assert "the certificate in use stays" in caplog.text
    certificates.issue()
    assert latest.if_changed() == latest.value != first
    assert "read again" in caplog.text


def test_the_time_at_which_a_certificate_expires_is_read(tmp_path: Path) -> None:
    authority = trustme.CA()
    for ends in (datetime(2031, 2, 3, 4, 5, 6, tzinfo=UTC), datetime(2055, 6, 7, 8, 9, 10, tzinfo=UTC)):
        issued = authority.issue_cert("localhost", not_after=ends)
        file = tmp_path / "certificate.pem"
        file.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        assert expires_s(file) == ends.timestamp()
    file.write_text("damaged")
    assert expires_s(file) == 0 == expires_s(tmp_path / "nothing")


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, other = Certificates(tmp_path / "a").files(), Certificates(tmp_path / "b").files()
    with pytest.raises(TlsError, match=r"certificate.*must be PEM files"):
        ServerContext(TlsFiles(one.certificate, other.key))


def test_a_certificate_that_has_expired_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    certificates = Certificates(tmp_path)
    files = certificates.files()
    ServerContext(files)
    assert not caplog.messages
    certificates.issue(not_after=datetime(2020, 1, 1, tzinfo=UTC))
    ServerContext(files)
    assert caplog.messages == [f"{files.certificate} has expired, so clients refuse it; replace it"]
