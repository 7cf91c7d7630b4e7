import pytest

from sonorant.engine.code2wav.schedule.chunks import GROWTH, ChunkSizes, rows_of_equal_length

SERVED = (1, 2, 4, 8, 12)


@pytest.mark.parametrize(
    ("ramp", "pass_sizes", "wanted"),
    [
        (SERVED, SERVED, [1, 4, 8, 12, 12]),
        (SERVED, range(1, 97), [1, 4, 8, 12, 12]),
        ((3, 5), (1, 3, 5), [3, 3, 5, 5, 5]),
        ((3, 5), range(1, 97), [3, 4, 5, 5, 5]),
        ((12,), (1, 12), [12, 1, 1, 12, 12]),
    ],
)
def test_a_chunk_is_not_much_longer_than_what_was_before(
    ramp: list[int], pass_sizes: list[int], wanted: list[int]
) -> None:
    sizes = ChunkSizes(ramp, pass_sizes)
    assert [sizes.wanted(num_decoded) for num_decoded in (0, 1, 2, 3, 100)] == wanted
    assert GROWTH == 4


def test_a_size_is_filled_or_padded() -> None:
    sizes = ChunkSizes(SERVED, SERVED)
    assert [sizes.whole(count) for count in range(1, 14)] == [1, 2, 2, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12]
    assert [sizes.padded(count) for count in range(1, 13)] == [1, 2, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12]


def test_runs_of_rows_of_equal_length() -> None:
    assert list(rows_of_equal_length([])) == []
    assert list(rows_of_equal_length([4, 4, 3, 1, 1])) == [slice(0, 2), slice(2, 3), slice(3, 5)]
