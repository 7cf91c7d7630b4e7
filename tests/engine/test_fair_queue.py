"""Whose item comes next: callers in rotation, each one's own in order, or in rotation, too."""

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from sonorant.engine import FairQueue

NAMES = st.sampled_from("abc")


def taken(queue: FairQueue[str]) -> str:
    items = []
    while queue:
        items.append(queue.popleft())
    return " ".join(items)


def test_callers_take_turns_and_keep_their_order() -> None:
    queue = FairQueue[str]()
    for item in ("a1", "a2", "a3", "b1", "c1", "b2"):
        queue.push(item, item[0])
    assert taken(queue) == "a1 b1 c1 a2 b2 a3"


def test_connections_of_a_caller_share_its_turns() -> None:
    queue = FairQueue[str]()
    for item in ("ax1", "ax2", "ax3", "ay1", "bx1", "bx2"):
        queue.push(item, item[0], item[1])
    assert taken(queue) == "ax1 bx1 ay1 bx2 ax2 ax3"


def test_who_comes_back_is_behind_those_who_wait() -> None:
    queue = FairQueue[str]()
    for item in ("a1", "b1", "c1"):
        queue.push(item, item[0])
    assert queue.popleft() == "a1"
    queue.push("a2", "a")
    assert taken(queue) == "b1 c1 a2"


def test_who_has_least_goes_first_and_among_these_who_has_waited_longest() -> None:
    queue = FairQueue[str]()
    for item in ("a1", "b1", "c1", "a2"):
        queue.push(item, item[0])
    load = {"a": 1, "b": 0, "c": 0}
    assert [queue.popleft(load.__getitem__) for _ in range(4)] == ["b1", "c1", "a1", "a2"]


def test_the_newest_is_dropped_of_the_caller_who_has_most_and_its_longest_line() -> None:
    queue = FairQueue[str]()
    for item in ("bx1", "ax1", "ay1", "ay2"):
        queue.push(item, item[0], item[1])
    assert [queue.drop() for _ in range(2)] == ["ay2", "ax1"] and len(queue) == 2
    assert taken(queue) == "bx1 ay1"


def test_a_queue_that_was_dropped_to_its_end_is_empty() -> None:
    queue = FairQueue[str]()
    queue.push("ax1", "a", "x")
    assert queue.drop() == "ax1" and not queue
    queue.push("ay1", "a", "y")
    assert taken(queue) == "ay1"


@given(st.lists(st.tuples(NAMES, NAMES) | st.none(), max_size=60))
def test_nothing_is_lost_and_no_caller_is_passed_twice(events: list[tuple[str, str] | None]) -> None:
    """None: an item is taken."""
    queue = FairQueue[tuple[str, str, int]]()
    waiting: dict[tuple[str, str], list[int]] = defaultdict(list)
    passed: dict[str, list[str]] = defaultdict(list)  # of each caller who waits: who was served meanwhile
    for number, event in enumerate([*events, *[None] * len(events)]):
        if event is not None:
            queue.push((*event, number), *event)
            waiting[event].append(number)
            passed.setdefault(event[0], [])
        elif queue:
            who, connection, item = queue.popleft()
            assert waiting[who, connection].pop(0) == item
            del passed[who]
            for others in passed.values():
                assert who not in others
                others.append(who)
            if any(items for (caller, _), items in waiting.items() if caller == who):
                passed[who] = []
    assert not queue and not any(waiting.values())
