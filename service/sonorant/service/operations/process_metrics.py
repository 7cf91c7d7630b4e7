"""Asks the server processes on this machine for their metrics, and whether they are ready."""

import asyncio
from collections.abc import Iterable

from sonorant.service.operations.merged_metrics import merged

ANSWER_TIMEOUT_S = 2.0  # of a process; one that does not answer is left out


async def scrape(ports: Iterable[int]) -> bytes:
    """Return the metrics of the processes with these metrics ports, as if they were one."""
    answers = await asyncio.gather(*(_get(port, "/metrics") for port in ports))
    return merged(body for status, body in answers if status == 200).encode()


async def ready(ports: Iterable[int]) -> str:
    """Return what the processes say of their readiness, each line once; "" if none wants new calls."""
    answers = await asyncio.gather(*(_get(port, "/ready") for port in ports))
    lines = [line for status, body in answers if status == 200 for line in body.splitlines(keepends=True)]
    return "".join(dict.fromkeys(lines))


async def _get(port: int, path: str) -> tuple[int, str]:
    """Return the status and the body; status 0 if there is no answer."""
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            finally:
                writer.close()
        return int(head.split(b" ", 2)[1]), body.decode()
    except (OSError, TimeoutError, ValueError, IndexError):
        return 0, ""
