"""The `sonorant` command as a process."""

import asyncio
import sys


async def start(*arguments: str, env: dict[str, str] | None = None) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sonorant.cli", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env,
    )


async def sonorant(*arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> tuple[int, bytes, str]:
    process = await start(*arguments, env=env)
    stdout, stderr = await process.communicate(stdin)
    assert process.returncode is not None
    return process.returncode, stdout, stderr.decode()
