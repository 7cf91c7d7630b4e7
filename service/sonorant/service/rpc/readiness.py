"""Readiness: whether new calls should come here. Health checks and the metrics port's /ready report it."""

import asyncio
from collections.abc import Callable

from sonorant.engine import EnginePool, EngineState
from sonorant.service.rpc.health import LIVENESS, HealthServicer
from sonorant.service.rpc.services import SERVICES

MODEL = "model/"  # prefix of a checkpoint's name: whether one of its worker pairs serves
READINESS = "readiness"  # like "" and the names of the services: whether to send calls here


class Readiness:
    def __init__(self, health: HealthServicer) -> None:
        self.serves = False  # whether new calls should come here
        self._health = health
        health.set_serving({LIVENESS: True})

    def update(self, engine: EnginePool, state: EngineState) -> None:
        """Set the health of the server as a whole and of each checkpoint."""
        self.serves = serves = state is EngineState.READY
        speaking = engine.speaking() if serves else set()
        serving = dict.fromkeys(("", READINESS, *SERVICES), serves)
        serving |= {f"{MODEL}{info.model}": info.model in speaking for info in engine.infos}
        self._health.set_serving(serving)

    async def follow(
        self, engine: EnginePool, states: "asyncio.Queue[EngineState]", on_ready: Callable[[], None]
    ) -> None:
        """Report each state of the engine. Return when the engine has failed for good."""
        before = EngineState.STARTING
        while (state := await states.get()) is not EngineState.FAILED:
            self.update(engine, state)
            if state is EngineState.READY and before is not EngineState.READY:
                on_ready()
            before = state
