"""Ports are kept, shared or refused, and a refusal says what to do."""

import socket
from contextlib import closing

import pytest

from sonorant.hosting.addresses import CannotListen, listening_socket, reserved_port


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:0"])
def test_a_kept_port_is_free_for_those_who_share_it_and_for_nobody_else(address: str) -> None:
    with reserved_port(address, "--listen") as kept:
        assert kept.rpartition(":")[0] == address.rpartition(":")[0] and not kept.endswith(":0")
        with closing(listening_socket(kept, "--listen", shared=True)) as one:
            with closing(listening_socket(kept, "--listen", shared=True)):
                host, _, port = kept.rpartition(":")
                socket.create_connection((host.strip("[]"), int(port)), timeout=60).close()
            with pytest.raises(CannotListen, match="is another server running there"):
                listening_socket(kept, "--listen")
            with pytest.raises(CannotListen, match="Choose an address with --other"), reserved_port(kept, "--other"):
                pass
            assert one.fileno() >= 0


def test_an_address_of_another_host_is_told_as_it_is() -> None:
    with pytest.raises(CannotListen, match=r"cannot listen on 192.0.2.1:80 \(Cannot assign requested address.*Choose"):
        listening_socket("192.0.2.1:80", "--listen")


def test_all_addresses_of_ipv6_take_ipv4_too() -> None:
    with reserved_port("[::]:0", "--listen") as kept, closing(listening_socket(kept, "--listen", shared=True)):
        port = int(kept.rpartition(":")[2])
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port), timeout=60).close()
        with pytest.raises(CannotListen, match="is another server running there"):
            listening_socket(f"127.0.0.1:{port}", "--listen")
