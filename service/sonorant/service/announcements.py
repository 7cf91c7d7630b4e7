"""Tells the program or person that started the server what happens, in lines of JSON on stdout."""

import json
from collections.abc import Callable
from contextlib import suppress

Announce = Callable[..., None]


def announce_on_stdout(event: str, **more: object) -> None:
    with suppress(BrokenPipeError):  # nobody reads it any more
        print(json.dumps({"event": event, **more}), flush=True)
