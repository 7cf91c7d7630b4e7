from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonorant.engine.talker.schedule.memory.pages import PagePool

ABC = (b"a", b"ab", b"abc")


def lease(pool: PagePool, count: int, keys: Sequence[bytes] = ()) -> tuple[int, ...]:
    """A lease that there is room for, with its new pages filled as `keys` say."""
    found = pool.lease(count, keys)
    assert found is not None and len(found.pages) == count
    for page, key in zip(found.pages, keys, strict=False):
        pool.share(page, key)
    return found.pages


@pytest.mark.parametrize(("positions", "pages"), [(1, 1), (16, 1), (17, 2), (32, 2)])
def test_pages_for(positions: int, pages: int) -> None:
    assert PagePool(8, 16).pages_for(positions) == pages


def test_what_is_not_there_cannot_be_leased() -> None:
    pool = PagePool(2, 16)
    assert pool.lease(3) is None
    assert pool.num_free == 2


def test_a_page_comes_back_once() -> None:
    pool = PagePool(2, 16)
    pages = lease(pool, 2)
    pool.give_back(pages)
    with pytest.raises(RuntimeError, match="given back without a lease"):
        pool.give_back(pages[:1])
    with pytest.raises(RuntimeError, match="shared without a lease"):
        pool.share(pages[0], b"a")


def test_pages_of_equal_content_are_leased_twice_and_kept_when_nobody_has_them() -> None:
    pool = PagePool(8, 16)
    first = lease(pool, 4, ABC)
    second = pool.lease(3, ABC[:2])
    assert second is not None and second.num_shared == 2 and second.pages[:2] == first[:2]
    assert second.pages[2] not in first and pool.num_free == 3
    pool.give_back(first)
    pool.give_back(second.pages)
    assert pool.num_free == 8
    third = pool.lease(8, ABC)
    assert third is not None and third.num_shared == 3 and third.pages[:3] == first[:3]


def test_a_prefix_is_shared_up_to_its_first_gap() -> None:
    pool = PagePool(8, 16)
    pool.give_back(lease(pool, 3, ABC))
    found = pool.lease(3, (b"a", b"ax", b"abc"))
    assert found is not None and found.num_shared == 1


def test_what_was_not_used_for_longest_goes_first_and_of_a_prefix_its_end() -> None:
    pool = PagePool(4, 16)
    pool.give_back(lease(pool, 2, (b"a", b"ab")))
    pool.give_back(lease(pool, 2, (b"x", b"xy")))
    pool.give_back(lease(pool, 2, (b"a", b"ab")))
    lease(pool, 1)
    found = pool.lease(2, (b"x", b"xy"))
    assert found is not None and found.num_shared == 1
    found = pool.lease(1, (b"a",))
    assert found is not None and found.num_shared == 1


def test_pages_that_would_be_shared_are_not_forgotten_to_make_room() -> None:
    pool = PagePool(4, 16)
    pool.give_back(lease(pool, 3, ABC))
    assert pool.lease(5, ABC) is None
    assert pool.num_free == 4
    found = pool.lease(4, ABC)
    assert found is not None and found.num_shared == 3


prompts = st.tuples(st.sampled_from("abc"), st.integers(0, 4), st.integers(1, 6))  # whose, full pages, pages in all


@given(st.lists(st.one_of(prompts, st.integers(0, 5)), max_size=80))
def test_nothing_is_lost_or_taken_from_under_a_lease(actions: list[tuple[str, int, int] | int]) -> None:
    """A prompt is leased and filled; a number gives a lease back. `content` is what a page would really hold."""
    pool = PagePool(12, 4)
    content: dict[int, bytes] = {}
    leases: list[tuple[tuple[int, ...], list[bytes]]] = []
    for action in actions:
        if isinstance(action, int):
            if leases:
                pool.give_back(leases.pop(action % len(leases))[0])
        else:
            name, num_full, count = action
            keys = [(name * (i + 1)).encode() for i in range(min(num_full, count))]
            free_before = pool.num_free
            if (found := pool.lease(count, keys)) is None:
                assert free_before < count, "sharing never makes room scarcer"
                continue
            in_use = {page for pages, _ in leases for page in pages}
            for index, page in enumerate(found.pages):
                if index < found.num_shared:
                    assert content[page] == keys[index]
                else:
                    assert page not in in_use, "written under a lease"
                    content[page] = keys[index] if index < len(keys) else b"frames"
            for page, key in zip(found.pages, keys, strict=False):
                pool.share(page, key)
            leases.append((found.pages, keys))
        for pages, keys in leases:
            assert [content[page] for page in pages[: len(keys)]] == keys
        counts = Counter(page for pages, _ in leases for page in pages)
        assert pool.num_leases == counts.total()
        assert pool.num_free == 12 - len(counts)
        pool.check_conservation()


def test_what_a_lease_could_get_without_other_leases() -> None:
    pool = PagePool(num_pages=8, page_size=16)
    one, other = pool.lease(3), pool.lease(2)
    assert one is not None and other is not None
    pool.share(one.pages[0], b"key")
    both = pool.lease(2, [b"key"])
    assert both is not None and both.pages[0] == one.pages[0]
    of_one = dict.fromkeys(one.pages, 1)
    of_two = {**of_one, one.pages[0]: 2, both.pages[1]: 1}
    assert [pool.num_free_without(leases) for leases in ({}, of_one, of_two)] == [2, 4, 6]
    assert [pool.num_new(2, [b"key"], leases) for leases in ({}, of_one, of_two)] == [1, 1, 2]
