"""The commit policy: what it releases stays true, and comes out whole."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonorant.asr.commit import CommitPolicy
from sonorant.asr.hypotheses import Hypothesis, HypothesisPart
from sonorant.asr.words import split_words

WORDS = st.sampled_from(
    ["I", "said", "something", "some", "2026", "$1.50", "Dr.", "twenty", "people,", "u", "你好", "é"]
)
TRANSCRIPTS = st.lists(WORDS, max_size=12).map(" ".join)


def hypothesis(text: str, time_s: float = 0.0, *, stability: float | None = None, final: bool = False) -> Hypothesis:
    return Hypothesis((HypothesisPart(text, stability),), time_s, final)


def released(policy: CommitPolicy, *hypotheses: Hypothesis) -> list[str]:
    """What comes out of each."""
    return ["".join(word.text for word in policy.feed(each)) for each in hypotheses]


@st.composite
def true_claims(draw: st.DrawFn) -> tuple[str, list[Hypothesis]]:
    """A transcript, and hypotheses on the way to it whose stable words are right if another word follows them."""
    text = draw(TRANSCRIPTS)
    hypotheses = []
    for cut in sorted(draw(st.lists(st.integers(0, len(text)), max_size=8))):
        within_word = cut < len(text) and cut > 0 and text[cut] != " " and text[cut - 1] != " "
        tail = draw(st.sampled_from(["", "x", "x and more"] if within_word else ["", " x", "  x and more"]))
        hypotheses.append(Hypothesis((HypothesisPart(text[:cut], 0.9), HypothesisPart(tail, 0.1)), len(hypotheses)))
    return text, [*hypotheses, hypothesis(text, len(hypotheses), final=True)]


@given(true_claims())
def test_stable_words_are_released_as_a_prefix_and_all_at_the_end(case: tuple[str, list[Hypothesis]]) -> None:
    text, hypotheses = case
    policy, spoken = CommitPolicy(), ""
    for each in hypotheses:
        spoken += "".join(word.text for word in policy.feed(each))
        assert text.startswith(spoken)
    assert spoken == text and policy.num_contradicted == 0


@given(TRANSCRIPTS, st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3)), max_size=20), st.integers(2, 5))
def test_words_that_hypotheses_agree_on_are_released_as_a_prefix(
    text: str, steps: list[tuple[int, int]], agreement: int
) -> None:
    words, junk = text.split(), itertools.count()
    policy, spoken = CommitPolicy(agreement=agreement), ""
    for num_right, num_wrong in steps:  # wrong words never come twice
        guess = words[:num_right] + [f"wrong{next(junk)}" for _ in range(num_wrong)]
        spoken += "".join(word.text for word in policy.feed(hypothesis(" ".join(guess))))
        assert text.startswith(spoken)
    spoken += "".join(word.text for word in policy.feed(hypothesis(text, final=True)))
    assert spoken == text and policy.num_contradicted == 0


@given(st.lists(st.tuples(TRANSCRIPTS, st.sampled_from([None, 0.0, 0.9]), st.booleans()), max_size=12))
def test_a_final_hypothesis_is_never_spoken_twice_and_never_left_out(
    said: list[tuple[str, float | None, bool]],
) -> None:
    policy, spoken, contradicted = CommitPolicy(agreement=1), [], 0
    for time_s, (text, stability, final) in enumerate(said):
        words = policy.feed(hypothesis(text, time_s, stability=stability, final=final))
        assert all(0 <= word.delay_s <= time_s for word in words)
        spoken += [word.text for word in words]
        if final:
            num_wrong, contradicted = policy.num_contradicted - contradicted, policy.num_contradicted
            assert abs(len(spoken) - len(split_words(text))) <= num_wrong
            if num_wrong == 0:
                assert "".join(spoken) == text
            spoken = []


@pytest.mark.parametrize(
    ("partials", "out"),
    [
        (["so", "so it", "so it is"], ["", "so", " it"]),
        (["2026", "2026 people", "2026 people came"], ["", "", "2026 people"]),
        (["in 2026", "in 2026 we", "in 2026 we met"], ["in", "", " 2026 we"]),
        (["dr", "Dr. Who", "Dr. Who is"], ["", "", "Dr. Who"]),
        (["pay $1", "pay $1.50", "pay $1.50 now"], ["pay", "", ""]),
        (["twenty", "twenty six", "twenty six of them", "twenty-six of them"], ["", "", "twenty six of", ""]),
        (["u", "u s", "u s a", "u s a won it"], ["", "", "", "u s a won"]),
        (["some", "something", "something else"], ["", "", "something"]),
    ],
)
def test_words_that_may_change_wait(partials: list[str], out: list[str]) -> None:
    policy = CommitPolicy(agreement=1)
    assert released(policy, *[hypothesis(text, stability=0.9) for text in partials]) == out


def test_words_that_changed_recently_wait() -> None:
    policy = CommitPolicy(agreement=3)
    partials = ["a cat sat", "a hat sat", "a hat sat", "a hat sat on", "a hat sat in"]
    assert released(policy, *map(hypothesis, partials)) == ["", "", "a", " hat sat", ""]


def test_stability_counts_from_the_start_and_up_to_the_limit() -> None:
    policy = CommitPolicy(min_stability=0.5)
    parts = (
        HypothesisPart("to be", 0.9),
        HypothesisPart(" or not", 0.5),
        HypothesisPart(" to", 0.1),
        HypothesisPart(" be", 0.9),
    )
    assert released(policy, Hypothesis(parts, 0.0)) == ["to be or not"]


def test_spoken_words_stay_and_the_rest_follows_at_the_right_place() -> None:
    policy = CommitPolicy(agreement=1)
    partials = ["the green felt area in", "the green folder in the new map"]
    assert released(policy, *map(hypothesis, partials)) == ["the green felt area", " the new"]
    assert released(policy, hypothesis("The green folder and the new map.", final=True)) == [" map."]
    assert policy.num_contradicted == 2  # "felt area" for "folder and"


def test_another_spelling_is_no_contradiction() -> None:
    policy = CommitPolicy(agreement=1)
    assert released(
        policy, hypothesis("hello world how are"), hypothesis("Hello, world. How are you?", final=True)
    ) == [
        "hello world how",
        " are you?",
    ]
    assert policy.num_contradicted == 0


def test_delay_runs_from_the_first_hypothesis_that_had_the_word() -> None:
    policy = CommitPolicy(agreement=2)
    delays = [
        [(word.text, word.delay_s) for word in policy.feed(each)]
        for each in (
            hypothesis("a", 1.0),
            hypothesis("a bee", 2.0),
            hypothesis("a sea", 3.0),
            hypothesis("a sea dog", 4.0),
            hypothesis("a sea dog", 5.0, final=True),
        )
    ]
    assert delays == [[], [("a", 1.0)], [], [(" sea", 1.0)], [(" dog", 1.0)]]


@pytest.mark.parametrize("settings", [{"min_stability": 1.5}, {"agreement": 0}])
def test_settings_out_of_range(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        CommitPolicy(**settings)  # type: ignore[arg-type]
