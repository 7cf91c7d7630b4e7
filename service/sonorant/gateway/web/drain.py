"""Ends sockets that stay open between utterances when the gateway shuts down: each as soon as it is idle."""

import asyncio
from typing import Protocol

from aiohttp import web

DRAINING = web.AppKey("draining", asyncio.Event)


class Conversation(Protocol):
    """A conversation on a socket of its own."""

    async def run(self) -> None:
        """Serve until either side has closed the socket."""

    async def go_away(self) -> None:
        """Finish what is being spoken, accept nothing new, and close."""


class Conversations:
    def __init__(self) -> None:
        self.open: set[Conversation] = set()


CONVERSATIONS = web.AppKey("conversations", Conversations)


async def end_conversations(app: web.Application) -> None:
    app[DRAINING].set()
    # At the same time, because closing waits for a peer that does not answer.
    await asyncio.gather(*(conversation.go_away() for conversation in app[CONVERSATIONS].open))
