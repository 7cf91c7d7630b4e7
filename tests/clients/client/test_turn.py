"""A turn of a voice agent against a real server with predictable answers."""

import asyncio
import socket

import grpc
import pytest

from sonorant.client import (
    AudioChunk,
    ConnectionLost,
    Resumed,
    Retry,
    ServerBusy,
    SpeechClient,
    SpeechError,
    synthesis_config,
)
from sonorant.client.turn import Turn
from tests.clients.scripted_server import LOUD, scripted_server
from tests.free_port import free_port


async def test_text_goes_out_as_it_comes_and_audio_comes_in() -> None:
    async with scripted_server() as (target, speech), SpeechClient(target) as client:
        turn = Turn(client, synthesis_config(voice="anna"), max_lead_ms=500)
        turn.say("one ")
        first = await anext(turn)
        assert isinstance(first, AudioChunk) and first.data == LOUD * 4
        turn.say("two")
        turn.end()
        turn.say("too late")
        rest = [event.data async for event in turn if isinstance(event, AudioChunk)]
        await turn.close()
        assert rest == [LOUD * 3]
        assert (turn.text, turn.over) == ("one two", True)
        assert [request.WhichOneof("payload") for request in speech.received] == ["config", "text", "text", "end"]
        assert speech.received[0].config.max_lead_ms == 500


@pytest.mark.parametrize("at_once", [True, False])
async def test_half_an_emoji_costs_no_more_than_itself(at_once: bool) -> None:
    async with scripted_server() as (target, _), SpeechClient(target) as client:
        turn = Turn(client, synthesis_config())
        if not at_once:
            turn.say("A")
            await anext(turn)
        turn.say("Yes \ud83d")
        turn.say("\ude00 no \U0001f600")
        turn.end()
        assert [event.data async for event in turn if isinstance(event, AudioChunk)]
        await turn.close()
        assert turn.text.removeprefix("A") == "Yes \ufffd\ufffd no \U0001f600"


async def test_text_that_is_there_at_once_is_sent_with_the_call() -> None:
    async with scripted_server() as (target, speech), SpeechClient(target) as client:
        speech.greets_after_text = True  # it would wait for ever for a client that waits for it
        turn = Turn(client, synthesis_config())
        turn.say("one ")
        turn.say("two")
        turn.end()
        await asyncio.wait_for(speech.over.wait(), 60)
        assert [event.data async for event in turn if isinstance(event, AudioChunk)] == [LOUD * 7]
        await turn.close()
        assert [request.text for request in speech.received if request.HasField("text")] == ["one two"]


async def test_a_turn_that_is_cut_off_ends_at_once_and_the_server_learns_what_was_heard() -> None:
    async with scripted_server() as (target, speech), SpeechClient(target) as client:
        turn = Turn(client, synthesis_config())
        turn.say("one ")
        await anext(turn)
        heard = turn.cut_off(120)
        assert [event async for event in turn] == []
        await turn.close()
        assert (heard.text, heard.unheard, heard.played_ms) == ("", "one ", 120)
        assert speech.received[-1].cancel.played_ms == 120
        await asyncio.wait_for(speech.over.wait(), 60)


async def test_a_turn_that_is_cut_off_before_the_server_answers_has_no_events() -> None:
    async with scripted_server() as (target, _), SpeechClient(target) as client:
        turn = Turn(client, synthesis_config())
        turn.say("one ")
        turn.cut_off(0)
        await turn.close()
        assert [event async for event in turn] == []


async def test_a_turn_that_is_closed_stops_at_once() -> None:
    """Also where its text has not ended, as of a turn that is left in the middle."""
    async with scripted_server() as (target, speech), SpeechClient(target) as client:
        turn = Turn(client, synthesis_config())
        turn.say("one ")
        async for _event in turn:
            break
        await asyncio.wait_for(turn.close(), 60)
        await asyncio.wait_for(speech.over.wait(), 60)
        turn.say("Nobody speaks this.")
        assert turn.over and [event async for event in turn] == []
        assert turn.heard(0).unheard == "one "


async def test_a_turn_tells_of_a_pause_for_lack_of_a_server() -> None:
    async with scripted_server() as (target, speech), SpeechClient(target) as client:
        speech.resumable, speech.lost_after = True, [1]
        turn = Turn(client, synthesis_config())
        turn.say("one ")
        events = [await anext(turn)]
        turn.say("two")
        turn.end()
        events += [event async for event in turn]
        await turn.close()
        kinds = [AudioChunk, ConnectionLost, Resumed, AudioChunk]
        assert [type(event) for event in events] == kinds


@pytest.mark.parametrize(("voice", "text"), [("busy", "Hello."), ("anna", "fail")])
async def test_failures_end_the_iteration(voice: str, text: str) -> None:
    async with scripted_server() as (target, _), SpeechClient(target) as client:
        turn = Turn(client, synthesis_config(voice=voice))
        turn.say(text)
        with pytest.raises(ServerBusy if voice == "busy" else SpeechError):
            async for _event in turn:
                pass
        turn.say("More of it is not spoken alone.")
        await turn.close()
        assert [event async for event in turn] == []


async def test_a_turn_waits_for_a_server_that_is_down_as_its_client_is_told_to() -> None:
    port = free_port()
    retry = Retry(for_s=20, when_down=True)
    async with SpeechClient(f"127.0.0.1:{port}", retry=retry) as client:
        turn = Turn(client, synthesis_config(), timeout_s=1)
        turn.say("one ")
        turn.end()
        told = asyncio.create_task(client.capabilities())
        await asyncio.sleep(1.3)
        assert not turn.over and not told.done()
        async with scripted_server(f"127.0.0.1:{port}"):
            assert [event async for event in turn]
            await told
        await turn.close()


async def test_silence_of_the_server_is_an_error_unless_it_waits_for_text() -> None:
    async with scripted_server() as (target, _), SpeechClient(target) as client:
        turn = Turn(client, synthesis_config(), timeout_s=1)
        turn.say("one ")
        await anext(turn)
        await asyncio.sleep(1.2)
        assert not turn.over
        turn.say("limit")  # done
        assert [event async for event in turn] == []
        await turn.close()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = SpeechClient(f"127.0.0.1:{silent.getsockname()[1]}")
        turn = Turn(client, synthesis_config(), timeout_s=0.2)
        turn.say("one ")
        with pytest.raises(SpeechError, match=r"did not answer within the call's 0.2 s") as late:
            await anext(turn)
        assert late.value.code is grpc.StatusCode.DEADLINE_EXCEEDED
        await turn.close()
        await client.close()
