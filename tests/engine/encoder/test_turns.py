"""Whose turn it is at the encoder: one at a time, callers in turns, and whoever leaves passes it on."""

import asyncio

import pytest

from sonorant.engine.encoder.kept_up import EncoderTurns


async def take(turns: EncoderTurns, name: str, taken: list[str]) -> None:
    async with turns.turn(name[0]):
        taken.append(name)
        await asyncio.sleep(0)


async def test_a_caller_who_comes_last_is_not_behind_all_of_another() -> None:
    turns, taken = EncoderTurns(), list[str]()
    async with turns.turn("a"):
        tasks = [asyncio.create_task(take(turns, name, taken)) for name in ("a2", "a3", "a4", "b1")]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert taken == ["b1", "a2", "a3", "a4"]


@pytest.mark.parametrize("is_passed_on", [False, True])
async def test_who_is_cancelled_leaves_the_turn_to_the_next(is_passed_on: bool) -> None:
    """While it waits, or just when it is its turn."""
    turns, taken = EncoderTurns(), list[str]()
    async with turns.turn("a"):
        first, second = (asyncio.create_task(take(turns, name, taken)) for name in ("b1", "c1"))
        await asyncio.sleep(0)
        if not is_passed_on:
            first.cancel()
    first.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert taken == ["c1"]
    async with asyncio.timeout(60), turns.turn("a"):
        pass


async def test_a_turn_that_fails_is_over() -> None:
    turns = EncoderTurns()
    with pytest.raises(ZeroDivisionError):
        async with turns.turn("a"):
            _ = 1 // 0
    async with asyncio.timeout(60), turns.turn("b"):
        pass
