"""Reads text from stdin as it comes, without blocking the event loop or the end of the program."""

import asyncio
import codecs
import os
import threading
from collections.abc import AsyncIterator
from contextlib import suppress


async def stdin_text() -> AsyncIterator[str]:
    """Yield text from stdin as soon as it is there. A thread reads, because files, pipes and terminals can all
    block. Raises ValueError if it is not UTF-8."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[bytes] = asyncio.Queue()

    def pump() -> None:
        data = b"-"
        while data:
            try:
                data = os.read(0, 65536)
            except OSError:  # this program was started with a closed stdin
                data = b""
            with suppress(RuntimeError):  # the loop is closed: nobody waits for text any more
                loop.call_soon_threadsafe(arrived.put_nowait, data)

    threading.Thread(target=pump, name="stdin", daemon=True).start()
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    data = b"-"
    while data:
        data = await arrived.get()
        try:
            text = decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            raise ValueError(f"stdin is not UTF-8 text: {error}") from None
        if text:
            yield text


async def stdin_lines() -> AsyncIterator[str]:
    """Yield the lines of stdin."""
    held = ""
    async for text in stdin_text():
        *complete, held = (held + text).split("\n")
        for line in complete:
            yield line
    if held:
        yield held
