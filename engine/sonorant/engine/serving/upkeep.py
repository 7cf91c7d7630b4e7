"""What an engine needs of the code that keeps its workers running, in this process or in another one."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from sonorant.engine.serving.seat import Seat
from sonorant.engine.serving.state import EngineState
from sonorant.engine.serving.workers import Facts


class Upkeep(Protocol):
    """`sonorant.engine.serving.supervisor.Supervisor` keeps the workers of its own process running. The function that
    it was made with gets each new state and the reason. From RESTARTING on, the seat must not be used any more."""

    async def start(self) -> None:
        """Return when the workers have loaded, or when the state of those of another process is known."""

    def seat(self) -> Seat | None:
        """What this process has of the running workers, if there are any."""

    def facts(self) -> Facts:
        """What each running worker reported when it had loaded, by the worker's name."""

    def forgive(self) -> None:
        """Do not count the present failure of the workers. Call it at RESTARTING."""

    def report_down(self, reason: str) -> None:
        """Have the workers replaced."""

    async def close(self) -> None: ...


Follow: TypeAlias = Callable[[Callable[[EngineState, str], None]], Upkeep]  # makes one, for the function given
