"""Plans whose results have not come yet: each is applied once, in the order in which they were made. Pure."""

from collections import deque
from typing import Generic, TypeVar

Plan = TypeVar("Plan")
Kept = TypeVar("Kept")


class UnderWay(Generic[Plan, Kept]):
    """Keeps for each plan what its planner will change when the result comes, so that the plan itself is a value."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._plans: deque[tuple[Plan, Kept]] = deque()

    def expect_room(self) -> None:
        """Raise RuntimeError if so many plans wait for their results that no more may be made."""
        if len(self._plans) == self._most:
            raise RuntimeError(f"a plan was asked for while the results of {self._most} have not been applied")

    def add(self, plan: Plan, kept: Kept) -> None:
        self.expect_room()
        self._plans.append((plan, kept))

    def newest(self, plan: Plan) -> Kept:
        """What is kept for the plan. Raise RuntimeError unless it is the only one under way."""
        if len(self._plans) != 1 or self._plans[0][0] is not plan:
            raise RuntimeError("a plan may be looked at only between the result before its own and its own")
        return self._plans[0][1]

    def take(self, plan: Plan) -> Kept:
        """What was kept for the plan, whose result has come. Raise RuntimeError unless it is the oldest under way."""
        if not self._plans or self._plans[0][0] is not plan:
            raise RuntimeError("a result was applied twice, out of order, or to a plan that was not made here")
        return self._plans.popleft()[1]
