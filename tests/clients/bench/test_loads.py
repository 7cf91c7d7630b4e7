"""Whose key each speaker of a load has, and that a server with many keys has room for all of them."""

from itertools import cycle, islice

import pytest

from sonorant.bench.loads import Load, Share, SpokenLoad, Target
from sonorant.engine import EngineOverloaded
from sonorant.service.access.api_keys import Caller
from sonorant.service.admission.ledger import Ledger
from sonorant.service.admission.reservations import Reservation, Reservations
from tests.service.fake_engine import FakeEngine
from tests.service.utterance._support import spec

NUM_PLACES = 1024
NUM_LISTENERS = 1000


def keys_of_listeners(num_keys: int, num_processes: int) -> list[str]:
    target = Target("speak", "", keys=tuple(f"key {number}" for number in range(num_keys)))
    load, speech = Load("paced", NUM_LISTENERS, 1.0, 0.0), SpokenLoad(("text",), seed=5)
    return [
        key
        for index in range(num_processes)
        for key in islice(
            cycle(Share(target, load, speech, 1.0, 1, index, num_processes).keys),
            len(range(index, NUM_LISTENERS, num_processes)),
        )
    ]


@pytest.mark.parametrize(("num_keys", "num_processes"), [(1, 6), (2, 6), (8, 1), (8, 6), (8, 17), (32, 12)])
def test_each_key_has_equally_many_speakers_however_many_processes_there_are(num_keys: int, num_processes: int) -> None:
    keys = keys_of_listeners(num_keys, num_processes)
    counts = [keys.count(key) for key in set(keys)]
    assert len(counts) == num_keys and max(counts) - min(counts) <= 1


@pytest.mark.parametrize(
    ("num_used", "num_known", "num_refused"), [(8, 8, 0), (4, 4, 0), (1, 8, NUM_LISTENERS - NUM_PLACES * 7 // 8)]
)
async def test_keys_with_an_even_share_each_fill_a_server_and_one_of_many_leaves_an_eighth(
    num_used: int, num_known: int, num_refused: int
) -> None:
    engine = FakeEngine(max_streams=NUM_PLACES)
    engine.hold()
    places = Reservations(engine, Ledger(), lambda: num_known)  # type: ignore[arg-type]
    params, refused, opened = spec(engine).params, 0, []
    for key in keys_of_listeners(num_used, 6):
        opened.append(Reservation(places.of(Caller(key)), params.checkpoint))
        try:
            opened[-1].open(params, 1)
        except EngineOverloaded:
            refused += 1
    assert refused == num_refused
