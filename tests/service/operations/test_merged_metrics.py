"""The metrics of several processes, as one scrape shows them."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from sonorant.service.operations.engine_metrics import OF_ALL_PROCESSES, EngineCollector
from sonorant.service.operations.merged_metrics import merged
from tests.service.fake_engine import FakeEngine

OF_EACH = {"tts_queued_recordings", "tts_engine_backlog"}


def text(sessions: int, ends: dict[str, int], waits_s: list[float], up: int = 1) -> str:
    registry = CollectorRegistry()
    Gauge("tts_sessions", "Sessions.", registry=registry).set(sessions)
    Gauge("tts_sessions_used_ratio", "Their share.", registry=registry).set(sessions / 10)
    Gauge("tts_database_up", "Whether it is there.", registry=registry).set(up)
    Gauge("tts_slots", "Slots.", registry=registry).set(32)
    handled = Counter("grpc_server_handled", 'Calls, "all" of them.', ["method", "code"], registry=registry)
    for code, count in ends.items():
        handled.labels("/a/B", code).inc(count)
    queue_s = Histogram("tts_queue_seconds", "Waits.", buckets=(0.1, 1.0), registry=registry)
    for wait_s in waits_s:
        queue_s.observe(wait_s)
    return generate_latest(registry).decode()


def values(exposition: str) -> dict[tuple[str, str], float]:
    samples = [sample for family in text_string_to_metric_families(exposition) for sample in family.samples]
    return {(s.name, s.labels.get("code") or s.labels.get("le", "")): s.value for s in samples}


def test_numbers_of_each_are_added_and_those_of_all_are_not() -> None:
    one = text(2, {"OK": 3, "CANCELLED": 1}, [0.05, 0.5])
    other = text(5, {"OK": 4, "INTERNAL": 1}, [0.5, 5.0], up=0)
    found = values(merged([one, other]))
    assert found["tts_sessions", ""] == 7
    assert found["tts_sessions_used_ratio", ""] == 0.5, "each has read that of all"
    assert found["tts_database_up", ""] == 0
    assert found["tts_slots", ""] == 32
    assert [found["grpc_server_handled_total", code] for code in ("OK", "CANCELLED", "INTERNAL")] == [7, 1, 1]
    assert [found["tts_queue_seconds_bucket", le] for le in ("0.1", "1.0", "+Inf")] == [1, 3, 4]
    assert found["tts_queue_seconds_sum", ""] == 0.05 + 0.5 + 0.5 + 5.0
    assert found["tts_queue_seconds_created", ""] == min(
        values(each)["tts_queue_seconds_created", ""] for each in (one, other)
    )


def test_one_alone_stays_as_it_is() -> None:
    one = text(2, {"OK": 3}, [0.05])
    assert merged([one]) == one
    assert merged([]) == "\n"


def test_every_family_of_the_engine_is_either_of_all_processes_or_of_each() -> None:
    names = {family.name for family in EngineCollector(FakeEngine()).collect()}  # type: ignore[arg-type]
    assert names == OF_ALL_PROCESSES | OF_EACH
