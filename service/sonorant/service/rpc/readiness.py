"""What is told about whether calls belong here: to health checks, and to balancers that ask the metrics port."""

import asyncio
from collections.abc import Callable

from sonorant.engine import EnginePool, EngineState
from sonorant.service.rpc.health import HealthServicer
from sonorant.service.rpc.services import SERVICES

LIVENESS = "liveness"  # health name that says SERVING for as long as the process does its work, draining included
MODEL = "model/"  # and the name of a checkpoint: whether one of its worker pairs serves
READINESS = "readiness"  # as "" and the names of the services: whether to send calls here


class Readiness:
    def __init__(self, health: HealthServicer) -> None:
        self.serves = False  # whether new calls belong here
        self._health = health
        health.tell({LIVENESS: True})

    def tell(self, engine: EnginePool, state: EngineState) -> None:
        """Of the server as a whole, and of each checkpoint."""
        self.serves = serves = state is EngineState.READY
        speaking = {pair.model for pair in engine.pairs() if pair.state is EngineState.READY}
        told = dict.fromkeys(("", READINESS, *SERVICES), serves)
        told |= {f"{MODEL}{info.model}": serves and info.model in speaking for info in engine.infos}
        self._health.tell(told)

    async def follow(
        self, engine: EnginePool, states: "asyncio.Queue[EngineState]", on_ready: Callable[[], None]
    ) -> None:
        """Tell each state of the engine. Returns when there is no hope."""
        before = EngineState.STARTING
        while (state := await states.get()) is not EngineState.FAILED:
            self.tell(engine, state)
            if state is EngineState.READY and before is not EngineState.READY:
                on_ready()
            before = state
