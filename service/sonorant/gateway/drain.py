"""Sockets that stay open from one utterance to the next end when the gateway is about to go: once they are idle."""

import asyncio
from typing import Protocol

from aiohttp import web

DRAINING = web.AppKey("draining", asyncio.Event)


class Conversation(Protocol):
    """What has a socket to itself."""

    async def run(self) -> None:
        """Until either side has closed the socket."""

    async def go_away(self) -> None:
        """Finish what is spoken, take nothing new, and close."""


class Conversations:
    def __init__(self) -> None:
        self.open: set[Conversation] = set()


CONVERSATIONS = web.AppKey("conversations", Conversations)


async def end_conversations(app: web.Application) -> None:
    app[DRAINING].set()
    # At the same time: a peer that does not answer is waited for.
    await asyncio.gather(*(conversation.go_away() for conversation in app[CONVERSATIONS].open))
