"""Covers: bytes that are passed to another process by a file descriptor."""

import asyncio

from sonorant.engine.ipc.handed import Packets
from sonorant.engine.ipc.shared_bytes import SharedBytes
from tests.open_files import open_files


async def test_they_arrive_whole_and_leave_nothing_open() -> None:
    data = bytes(range(256)) * 50_000  # more than a packet may have
    before = open_files()
    ours, theirs = (Packets(end) for end in Packets.pair())
    arrived: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def on_message(shared: SharedBytes) -> None:
        with shared:
            arrived.set_result(shared.read())

    theirs.listen(on_message, lambda: None)
    with SharedBytes.of(data) as shared:
        ours.send(shared)
    assert await arrived == data
    for end in (ours, theirs):
        end.close()
    assert not open_files() - before
