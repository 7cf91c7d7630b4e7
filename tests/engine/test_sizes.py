"""The sizes chosen for a GPU, and how many listeners can be served with measured times."""

import pytest

from sonorant.engine.card.card import GIB, Card
from sonorant.engine.checkpoint.config import Checkpoint, load_checkpoint
from sonorant.engine.checkpoint.folders import resolve_model
from sonorant.engine.config import EngineConfig
from sonorant.engine.sizes import (
    allowed_bytes,
    holds_standby,
    listeners,
    max_pass_frames,
    missing_bytes,
    real_time_factor,
    slots_of,
    with_sizes,
)
from sonorant.settings import AUTO

LARGE, SMALL = "qwen3-tts-12hz-1.7b-customvoice", "qwen3-tts-12hz-0.6b-customvoice"


@pytest.fixture(scope="module")
def large() -> Checkpoint:
    return load_checkpoint(resolve_model(LARGE))


@pytest.fixture
def left_open(large: Checkpoint) -> EngineConfig:
    return EngineConfig.of(
        large.folder, num_slots=AUTO, max_queued_streams=AUTO, max_prefill_rows=AUTO, max_decode_batch=AUTO
    )


def sizes(config: EngineConfig) -> tuple[int, int, int, int]:
    talker = config.talker
    return talker.num_slots, talker.max_queued_streams, talker.max_prefill_rows, config.code2wav.max_decode_batch


@pytest.mark.parametrize(
    "model, memory_gib, slots",
    [
        *[(LARGE, 8, 8), (LARGE, 12, 64), (LARGE, 16, 128), (LARGE, 24, 256), (LARGE, 48, 512)],
        *[(LARGE, 79, 1024), (LARGE, 140, 2048), (LARGE, 288, 2048)],
        *[(SMALL, 6, 8), (SMALL, 8, 32), (SMALL, 12, 64), (SMALL, 16, 128), (SMALL, 24, 256)],
    ],
)
def test_slots_follow_from_the_memory_that_may_be_taken(model: str, memory_gib: int, slots: int) -> None:
    checkpoint = load_checkpoint(resolve_model(model))
    assert slots_of(memory_gib * GIB, checkpoint) == slots
    assert not missing_bytes(memory_gib * GIB, checkpoint, EngineConfig(checkpoint.folder))


@pytest.mark.parametrize(
    "memory_gib, holds", [(16, False), (24, False), (40, False), (48, True), (79, True), (140, True)]
)
def test_a_standby_fits_where_a_pair_keeps_its_slots_with_half_the_memory(
    memory_gib: int, holds: bool, large: Checkpoint
) -> None:
    memory_bytes = memory_gib * GIB
    assert holds_standby(memory_bytes, large, slots_of(memory_bytes, large)) is holds


def test_too_little_memory_is_missing_and_a_shorter_context_needs_less(large: Checkpoint) -> None:
    config = EngineConfig(large.folder)
    missing = missing_bytes(7 * GIB, large, config)
    assert 0 < missing < GIB
    assert missing_bytes(7 * GIB + missing, large, config) == 0
    assert missing_bytes(7 * GIB, large, config.but(max_context=1024)) < missing


def test_what_may_be_taken_is_what_is_free_and_allowed() -> None:
    card = Card.of("a card", (9, 0), 80 * GIB, 30 * GIB)
    assert allowed_bytes(card, 0) == 30 * GIB
    assert allowed_bytes(card, 12) == 12 * GIB
    assert allowed_bytes(card, 40) == 30 * GIB


def test_what_is_left_open_follows_from_the_slots(left_open: EngineConfig) -> None:
    assert sizes(with_sizes(left_open, None)) == (32, 32, 256, 32)  # the CPU
    assert sizes(with_sizes(left_open, 64)) == (64, 32, 256, 64)
    assert sizes(with_sizes(left_open, 2048)) == (2048, 1024, 1024, 128)


def test_a_card_with_few_slots_decodes_fewer_frames_in_a_pass() -> None:
    assert [max_pass_frames("cuda", slots, 2) for slots in (8, 32, 64, 256, 2048)] == [128, 128, 256, 1024, 1024]
    assert [max_pass_frames("cuda", slots, 4) for slots in (8, 32, 64, 256, 2048)] == [64, 64, 128, 512, 512]
    assert max_pass_frames("cpu", 2048, 4) == 96


def test_references_of_clones_are_kept_for_a_quarter_of_the_slots(left_open: EngineConfig) -> None:
    def kept(slots: int | None, **asked: int) -> int:
        config = left_open.but(**{"kept_references": AUTO, **asked})
        return with_sizes(config, slots).code2wav.kept_references

    assert (kept(None), kept(8), kept(1024), kept(1024, kept_references=3)) == (16, 16, 256, 3)


def test_an_encoder_of_recordings_takes_memory_that_slots_could_have(large: Checkpoint) -> None:
    base = load_checkpoint(resolve_model("qwen3-tts-12hz-1.7b-base"))
    assert slots_of(11 * GIB, base) < slots_of(11 * GIB, large)


def test_what_is_asked_for_stays(left_open: EngineConfig) -> None:
    asked = left_open.but(num_slots=100, max_queued_streams=0)
    assert sizes(with_sizes(asked, 2048)) == (100, 0, 256, 100)
    assert with_sizes(with_sizes(asked, 2048), 8) == with_sizes(asked, 2048)


def test_listeners_are_those_whose_frames_are_made_in_time() -> None:
    # Of 80 ms 56 are usable. 100 rows take 20 + 10 ms, 200 rows 30 + 20, 400 rows 72.5 + 40.
    step_s = {100: 0.020, 200: 0.030, 400: 0.0725}
    assert listeners(step_s, 1e-4, 0.08) == 200 + int(200 * (56 - 50) / (112.5 - 50))


def test_more_listeners_than_were_measured_need_as_much_time_each_as_the_most_that_were() -> None:
    # 64 rows take 5.64 ms of 56.
    assert listeners({1: 0.003, 64: 0.005}, 1e-5, 0.08) == int(64 * 56 / 5.64)


def test_one_listener_is_let_in_even_where_there_is_no_time() -> None:
    assert listeners({1: 0.2}, 1e-5, 0.08) == 1


def test_workers_with_cores_of_their_own_work_at_the_same_time() -> None:
    step_s = {1: 0.080, 8: 0.150}
    assert real_time_factor(step_s, 0.04, 0.08, in_turns=True) == pytest.approx(1.5)
    assert real_time_factor(step_s, 0.04, 0.08, in_turns=False) == pytest.approx(1.0)
    half = {rows: took_s / 4 for rows, took_s in step_s.items()}
    assert [listeners(half, 0.016, 0.08, in_turns=in_turns) for in_turns in (True, False)] == [2, 3]


def test_a_step_that_was_disturbed_while_it_was_measured_shuts_nobody_out() -> None:
    step_s = {256: 0.007, 512: 0.010, 1024: 0.021}
    assert listeners(step_s | {768: 0.050}, 1e-5, 0.08) == listeners(step_s | {768: 0.021}, 1e-5, 0.08) > 1024
