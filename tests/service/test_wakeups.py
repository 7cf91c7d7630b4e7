"""All that woke the loop is taken at once, and gRPC is otherwise none the wiser."""

import os
import socket

import pytest
from grpc._cython import cygrpc

from sonorant.service.wakeups import through_a_pipe


async def test_many_wakeups_are_taken_at_one_look() -> None:
    told: list[int] = []
    with through_a_pipe(told.append), through_a_pipe(told.clear):
        read, write = cygrpc.socket.socketpair()
    read.setblocking(False)
    for _ in range(5000):  # a socket would hold 278
        os.write(write.fileno(), b"1")
    assert read.recv(1) == b"1" * 5000
    assert read.recv(1) == b"" and told == [5000]
    write.close()
    write.close()
    assert read.recv(1) == b""


async def test_grpc_has_its_sockets_back_afterwards() -> None:
    with pytest.raises(ValueError, match="anything"), through_a_pipe(lambda num: None):
        assert cygrpc.socket.AF_INET is socket.AF_INET
        raise ValueError("anything")
    assert cygrpc.socket is socket
