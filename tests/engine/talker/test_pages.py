import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.talker.pages import PagePool


@pytest.mark.parametrize(("positions", "pages"), [(1, 1), (16, 1), (17, 2), (32, 2)])
def test_pages_for(positions: int, pages: int) -> None:
    assert PagePool(8, 16).pages_for(positions) == pages


def test_what_is_not_there_cannot_be_leased() -> None:
    with pytest.raises(RuntimeError, match="3 KV pages asked for, 2 are free"):
        PagePool(2, 16).lease(3)


def test_a_page_comes_back_once() -> None:
    pool = PagePool(2, 16)
    pages = pool.lease(2)
    pool.give_back(pages)
    with pytest.raises(RuntimeError, match="without a lease"):
        pool.give_back(pages[:1])


@given(st.lists(st.one_of(st.integers(0, 6), st.none()), max_size=60))
def test_leases_are_disjoint_and_nothing_is_lost(actions: list[int | None]) -> None:
    """A number leases so many pages; None gives the oldest lease back."""
    pool = PagePool(12, 4)
    leases: list[tuple[int, ...]] = []
    for action in actions:
        if action is None:
            if leases:
                pool.give_back(leases.pop(0))
        elif action <= pool.num_free:
            leases.append(pool.lease(action))
            assert len(leases[-1]) == action
        held = [page for lease in leases for page in lease]
        assert len(set(held)) == len(held) == pool.num_used
        assert set(held) <= set(range(12))
        assert pool.num_free + pool.num_used == 12
        pool.check_conservation()
