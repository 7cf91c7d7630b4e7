"""Text of stdin as it comes, without ever standing in the way of the event loop or of the program's end."""

import asyncio
import codecs
import os
import threading
from collections.abc import AsyncIterator
from contextlib import suppress


async def stdin_text() -> AsyncIterator[str]:
    """Whatever stdin has, as soon as it has it. A thread reads, because files, pipes and terminals all can block."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[bytes] = asyncio.Queue()

    def pump() -> None:
        data = b"-"
        while data:
            try:
                data = os.read(0, 65536)
            except OSError:  # closed by whoever started us
                data = b""
            with suppress(RuntimeError):  # the loop is closed: nobody listens any more
                loop.call_soon_threadsafe(arrived.put_nowait, data)

    threading.Thread(target=pump, name="stdin", daemon=True).start()
    decoder = codecs.getincrementaldecoder("utf-8")()
    while data := await arrived.get():
        if text := decoder.decode(data):
            yield text
    if text := decoder.decode(b"", final=True):
        yield text


async def stdin_lines() -> AsyncIterator[str]:
    """The same, line by line."""
    held = ""
    async for text in stdin_text():
        *complete, held = (held + text).split("\n")
        for line in complete:
            yield line
    if held:
        yield held
