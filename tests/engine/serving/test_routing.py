"""Where an utterance goes, for any checkpoints and any load."""

import dataclasses
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sonorant.engine import BUILTIN_VOICE_DIR, EngineConfig, EngineInfo, Need, SynthesisParams
from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.serving.info import engine_info
from sonorant.engine.serving.routing import PairLoad, choose_model, choose_pair

INFO = engine_info(load_checkpoint(BUILTIN_VOICE_DIR), EngineConfig(BUILTIN_VOICE_DIR))
SAMPLING = INFO.default_sampling
TASKS = ("custom_voice", "voice_design", "base")


def model(task: Any, name: str = "a", *speakers: str, hidden_size: int = 8) -> EngineInfo:
    return dataclasses.replace(INFO, model=name, task=task, speakers=speakers, hidden_size=hidden_size)


speakers = st.lists(st.sampled_from("abcd"), unique=True)
models = st.lists(
    st.builds(
        lambda task, speakers, size: model(task, "m", *(speakers if task == "custom_voice" else ()), hidden_size=size),
        st.sampled_from(TASKS),
        speakers,
        st.sampled_from((4, 8)),
    ),
    min_size=1,
    max_size=6,
)
needs = st.one_of(
    st.builds(Need, st.just(("custom_voice",)), st.sampled_from("abcdE")),
    st.builds(Need, st.sampled_from([("base",), ("base", "custom_voice")]), st.none(), st.sampled_from((4, 8, 9))),
    st.just(Need(("voice_design",))),
)


def has_all(need: Need, info: EngineInfo) -> bool:
    return (
        info.task in need.tasks
        and (need.speaker is None or need.speaker.lower() in info.speakers)
        and need.embedding_size in (None, info.hidden_size)
    )


@given(needs, models)
def test_the_first_checkpoint_of_the_best_kind_that_has_all_is_chosen(need: Need, models: list[EngineInfo]) -> None:
    chosen = choose_model(need, models)
    able = [index for index, info in enumerate(models) if has_all(need, info)]
    if able:
        assert chosen == min(able, key=lambda index: (need.tasks.index(models[index].task), index))
    elif any(info.task in need.tasks for info in models):
        assert models[chosen].task in need.tasks, "it can say what is wrong with the rest"
    else:
        assert chosen == 0
    assert chosen == choose_model(need, [*models, *models]), "more of the same change nothing"


@given(st.lists(st.builds(PairLoad, st.booleans(), st.integers(0, 5), st.integers(1, 3), st.integers(3, 5))))
def test_a_free_slot_comes_before_room_in_a_queue_and_of_such_the_pair_with_the_fewest_streams_is_chosen(
    pairs: list[PairLoad],
) -> None:
    chosen = choose_pair(pairs)
    serving = [pair for pair in pairs if pair.serves]
    with_room = [pair for pair in serving if pair.num_streams < pair.max_streams]
    with_slot = [pair for pair in with_room if pair.num_streams < pair.num_slots]
    candidates = with_slot or with_room or serving
    if not candidates:
        assert chosen is None
        return
    assert chosen is not None and pairs[chosen] in candidates
    fewest = min(pair.num_streams for pair in candidates)
    assert pairs[chosen].num_streams == fewest
    assert not any(pair in candidates and pair.num_streams == fewest for pair in pairs[:chosen])


@given(st.integers(1, 4), st.integers(0, 40))
def test_streams_that_stay_are_spread_evenly(num_pairs: int, num_streams: int) -> None:
    live = [0] * num_pairs
    for _ in range(num_streams):
        index = choose_pair([PairLoad(True, count, 8, 64) for count in live])
        assert index is not None
        live[index] += 1
    assert max(live) - min(live) <= 1


def test_what_an_utterance_needs() -> None:
    embedding, codes = np.zeros(8, np.float32), np.zeros((2, 4), np.int16)
    for params, need in (
        (SynthesisParams(SAMPLING, speaker="Ada"), Need(("custom_voice",), "Ada")),
        (SynthesisParams(SAMPLING, instruct="a calm voice"), Need(("voice_design",))),
        (SynthesisParams(SAMPLING, x_vector=embedding), Need(("base", "custom_voice"), None, 8)),
        (SynthesisParams(SAMPLING, x_vector=embedding, reference_codes=codes), Need(("base",), None, 8)),
        (SynthesisParams(SAMPLING, reference_text="Hello."), Need(("base",))),
        (SynthesisParams(SAMPLING, speaker="Ada", checkpoint="f"), Need(("custom_voice",), "Ada", fingerprint="f")),
    ):
        assert Need.of(params) == need
    published = [model("custom_voice", "cv", "ada"), model("base", "small", hidden_size=4), model("base", "large")]
    assert choose_model(Need.of(SynthesisParams(SAMPLING, x_vector=embedding)), published) == 2
    assert choose_model(Need.of(SynthesisParams(SAMPLING, speaker="ADA")), published[::-1]) == 2
    published[0] = dataclasses.replace(published[0], fingerprint="f")
    assert choose_model(Need.of(SynthesisParams(SAMPLING, x_vector=embedding, checkpoint="f")), published) == 0
