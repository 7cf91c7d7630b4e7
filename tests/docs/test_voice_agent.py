"""The agent of the page, run as it is written against a real server: pauses, a barge-in, history, two voices."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sonorant.client import Player, SpeechClient
from tests.e2e.server_process import ServerProcess

PAGE = (Path(__file__).parents[2] / "docs" / "voice-agent.md").read_text(encoding="utf-8")
MAX_LINES = 40
SINK = [sys.executable, "-c", "import sys, shutil; shutil.copyfileobj(sys.stdin.buffer, open('/dev/null', 'wb'))"]
TEXT = "It opens at nine, and closes at six, and on Sundays it is closed all day long. "


def snippet(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


def lines_of_code(program: str) -> list[str]:
    return [line for line in program.splitlines() if line.strip() and not line.strip().startswith(("#", "//"))]


def test_the_agent_has_at_most_forty_lines() -> None:
    assert len(lines_of_code(snippet("python"))) <= MAX_LINES


async def words(text: str, pause_s: float = 0.0) -> AsyncIterator[str]:
    yield "Let me look. "
    await asyncio.sleep(pause_s)  # a tool runs
    for word in text.split(" "):
        yield word + " "
        await asyncio.sleep(0.01)


async def broken_off() -> AsyncIterator[str]:
    yield "Let me "
    raise ConnectionError("the model is gone")


@pytest.mark.slow
async def test_the_agent_speaks_pauses_and_is_interrupted(server: ServerProcess) -> None:
    agent: dict[str, Any] = {}
    exec(snippet("python"), agent)
    async with SpeechClient(server.address) as client, Player(24_000, SINK) as player:
        history: list[dict[str, str]] = []
        await agent["reply"](client, player, history, "agent", words("It opens at nine.", 0.5), asyncio.Event())
        assert history[0]["content"].split() == ["Let", "me", "look.", "It", "opens", "at", "nine."]
        interrupted = asyncio.Event()
        speaking = asyncio.create_task(agent["reply"](client, player, history, "guide", words(TEXT), interrupted))
        while player.played_ms("1") < 1500:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        interrupted.set()
        await speaking
        with pytest.raises(ConnectionError, match="the model is gone"):
            await agent["reply"](client, player, history, "agent", broken_off(), asyncio.Event())
        assert history[2]["content"] == "Let me "
        hung_up = asyncio.create_task(agent["reply"](client, player, history, "agent", words(TEXT), asyncio.Event()))
        while player.played_ms("3") < 1500:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        hung_up.cancel()
        await asyncio.wait((hung_up,), timeout=5)
        assert hung_up.cancelled() and 0 < len(history[3]["content"].split()) < len(TEXT.split())
        at_once = asyncio.Event()
        at_once.set()
        await agent["reply"](client, player, history, "agent", words(TEXT), at_once)
        assert len(history) == 4, "nothing was heard"
    heard, whole = history[1]["content"].split(), ("Let me look. " + TEXT).split()
    assert 0 < len(heard) < len(whole) and heard == whole[: len(heard)]
