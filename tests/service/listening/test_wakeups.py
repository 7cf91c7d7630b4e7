"""All that woke the loop is taken at once, and gRPC is otherwise none the wiser."""

import asyncio
import os
import socket
from typing import Any

import pytest
from grpc._cython import cygrpc

from sonorant.service.listening.wakeups import MANY, through_a_pipe


async def test_many_wakeups_are_taken_at_one_look() -> None:
    told: list[str] = []
    with through_a_pipe(lambda: told.append("many")), through_a_pipe(told.clear):
        read, write = cygrpc.socket.socketpair()
    read.setblocking(False)
    for _ in range(5000):  # a socket would hold 278
        os.write(write.fileno(), b"1")
    assert read.recv(1) == b"1" * 5000
    assert read.recv(1) == b"" and told == ["many"]
    for num, was_told in ((MANY - 1, 1), (MANY, 2)):
        os.write(write.fileno(), b"1" * num)
        assert read.recv(1) == b"1" * num and len(told) == was_told, "few events are left to the loop"
    write.close()
    write.close()
    assert read.recv(1) == b""


def test_a_second_loop_takes_one_at_each_look() -> None:
    async def look() -> bytes:
        taken: bytes = read.recv(1)
        return taken

    async def opened() -> Any:
        with through_a_pipe(lambda: None):
            return cygrpc.socket.socketpair()

    read, write = asyncio.run(opened())
    read.setblocking(False)
    os.write(write.fileno(), b"123")
    assert asyncio.run(look()) == b"123"
    os.write(write.fileno(), b"456")
    assert [asyncio.run(look()) for _ in range(4)] == [b"4", b"5", b"6", b""]


async def test_grpc_has_its_sockets_back_afterwards() -> None:
    with pytest.raises(ValueError, match="anything"), through_a_pipe(lambda: None):
        assert cygrpc.socket.AF_INET is socket.AF_INET
        raise ValueError("anything")
    assert cygrpc.socket is socket
