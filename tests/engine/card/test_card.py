"""A card is read in one package, may be pretended, and is refused if nothing runs on it."""

import ast
from pathlib import Path

import pytest

from sonorant.engine.card.card import GIB, Card, pretended

SOURCES = Path(__file__).parents[3] / "engine/sonorant/engine"
# What tells about a card: in torch, in NVML, and a kernel that asks where it is.
ASKING = {
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "mem_get_info",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetMemoryInfo",
    "get_current_target",
}
STANDS_IN = "tools/listing.py"  # has a function of Triton's by this name

H100 = Card.of("H100", (9, 0), 80 * GIB, 79 * GIB, multiprocessors=132)


def test_nobody_else_asks_for_the_card() -> None:
    asked = {
        f"{path.relative_to(SOURCES)}: {name}"
        for path in SOURCES.rglob("*.py")
        if path.parent.name != "card" and str(path.relative_to(SOURCES)) != STANDS_IN
        for node in ast.walk(ast.parse(path.read_text()))
        if (name := getattr(node, "attr", getattr(node, "id", ""))) in ASKING
    }
    assert not asked, "use sonorant.engine.card"
    here = "".join(path.read_text() for path in (SOURCES / "card").glob("*.py"))
    assert "mem_get_info" in here and "nvmlDeviceGetMemoryInfo" in here, "the names above are still those in use"


@pytest.mark.parametrize(
    "capability, shared_kib, clusters, warpgroups, architecture",
    [
        ((8, 0), 163, False, False, "sm_80"),
        ((8, 6), 99, False, False, "sm_86"),
        ((8, 9), 99, False, False, "sm_89"),
        ((9, 0), 227, True, True, "sm_90a"),
        ((10, 0), 227, True, False, "sm_100a"),
        ((12, 0), 99, True, False, "sm_120a"),
    ],
)
def test_what_cards_have(
    capability: tuple[int, int], shared_kib: int, clusters: bool, warpgroups: bool, architecture: str
) -> None:
    card = Card.of("a card", capability, 24 * GIB)
    assert (card.shared_bytes // 1024, card.has_clusters, card.has_warpgroups) == (shared_kib, clusters, warpgroups)
    assert card.has_dependent_launch == card.has_clusters
    assert card.architecture == architecture and not card.why_unfit


def test_an_older_card_is_refused_with_what_to_do() -> None:
    assert "T4 has compute capability 7.5, and 8.0 or later is needed" in Card.of("T4", (7, 5), 16 * GIB).why_unfit


def test_nothing_is_pretended_unless_it_is_asked_for() -> None:
    assert pretended(H100, {}) == H100


def test_a_pretended_capability_brings_what_such_cards_have_and_code_is_for_the_real_one() -> None:
    card = pretended(H100, {"SONORANT_PRETEND_CARD": "capability=12.0"})
    assert (card.capability, card.shared_bytes, card.has_warpgroups) == ((12, 0), 99 * 1024, False)
    assert card.has_clusters and card.has_dependent_launch
    assert (card.architecture, card.multiprocessors, card.free_bytes) == ("sm_90a", 132, 79 * GIB)


def test_pretended_memory_leaves_free_what_a_smaller_card_would_have() -> None:
    card = pretended(H100, {"SONORANT_PRETEND_CARD": "memory_gib=12"})
    assert (card.memory_bytes, card.free_bytes) == (12 * GIB, 11 * GIB)
    full = Card.of("H100", (9, 0), 80 * GIB, 3 * GIB)
    assert pretended(full, {"SONORANT_PRETEND_CARD": "memory_gib=12"}).free_bytes == 0


def test_single_features_can_be_missing() -> None:
    wanted = {"SONORANT_PRETEND_CARD": "shared_kib=99 clusters=no dependent_launch=no"}
    card = pretended(H100, wanted)
    assert (card.shared_bytes, card.has_clusters, card.has_dependent_launch) == (99 * 1024, False, False)
    assert card.capability == (9, 0)


def test_what_cannot_be_pretended_is_an_error() -> None:
    with pytest.raises(ValueError, match="warp cannot be pretended"):
        pretended(H100, {"SONORANT_PRETEND_CARD": "warp=7"})
