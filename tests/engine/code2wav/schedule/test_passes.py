from hypothesis import given
from hypothesis import strategies as st

from sonorant.engine.code2wav.schedule.passes import padded, row_sizes, split


@given(st.integers(0, 300), st.sets(st.integers(2, 40)))
def test_slices_cover_everything_in_order_with_sizes_that_there_are(count: int, more_sizes: set[int]) -> None:
    sizes = [1, *sorted(more_sizes)]
    slices = split(count, sizes)
    assert [index for piece in slices for index in range(count)[piece]] == list(range(count))
    assert all(piece.stop - piece.start in sizes for piece in slices)


def test_the_longest_that_fits_comes_first() -> None:
    assert split(11, (1, 2, 4, 8, 12)) == [slice(0, 8), slice(8, 10), slice(10, 11)]
    assert split(12, (1, 2, 4, 8, 12)) == [slice(0, 12)]
    assert split(200, range(1, 97)) == [slice(0, 96), slice(96, 192), slice(192, 200)]


@given(st.integers(0, 300), st.integers(1, 40))
def test_passes_that_are_filled_up_are_as_few_as_can_be(count: int, largest: int) -> None:
    slices = padded(count, largest)
    assert [index for piece in slices for index in range(count)[piece]] == list(range(count))
    assert len(slices) == -(-count // largest) and all(piece.stop - piece.start <= largest for piece in slices)


def test_row_counts_are_bounded_by_frames_but_one_row_can_always_be_decoded() -> None:
    assert row_sizes([1, 2, 4, 8, 16], 4, 32) == [1, 2, 4, 8]
    assert row_sizes([1, 2, 4], 100, 32) == [1]
