"""How callers share what there is only so much of: sessions, places, slots, pages. Pure.

There is one rule, for all of them: a caller takes what is free up to its fair part. A caller with more than that leaves
some free, for callers who have less.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shares:
    fair: int  # how many a caller may have without leaving any to others
    kept: int  # how many a caller with more leaves to others

    @classmethod
    def of_engine(cls, num_all: int) -> "Shares":
        """The shares of places, slots and pages in the engine: above a half, an eighth stays free."""
        return cls(fair=num_all // 2, kept=num_all // 8)

    def to_leave(self, num_held: int) -> int:
        """Return how many a caller must leave free that then has so many."""
        return self.kept if num_held > self.fair else 0

    def leaves_enough(self, num: int, num_held: int, num_free: int) -> bool:
        """Return whether a caller that has `num_held` leaves enough when it takes `num` of what is free."""
        return num_held + num <= self.fair or num_free - num >= self.kept
