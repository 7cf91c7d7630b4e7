"""Every query of the dashboard and of the documents is PromQL, and asks a real server for what it has."""

import json
import re
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml

from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest
from tests.e2e.server_process import ServerProcess, samples
from tests.gateway.gateway_process import GatewayProcess
from tests.service.harness import failure

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "dashboard.json").read_text())
# Each with its legend.
PANELS = [(target["expr"], target["legendFormat"]) for panel in DASHBOARD["panels"] for target in panel["targets"]]
DOCUMENTS = "".join((ROOT / "docs" / name).read_text() for name in ("scaling.md", "operations.md"))
QUERIES = [*PANELS, *((query, "") for query in re.findall(r"`(\w+\([^`]*(?:rate|tts_)[^`]*)`", DOCUMENTS))]
ALERTS = yaml.safe_load((ROOT / "deploy" / "alerts.yaml").read_text())
WATCHING = (ROOT / "docs" / "watching.md").read_text()
TARGET = {"instance", "job"}  # labels that Prometheus adds
Names = dict[str, set[str]]


def status_of(url: str, body: bytes | None = None) -> int:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            response.read()
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.fixture(scope="session")
def of_gateway(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What a gateway tells after a request that was served and one that failed."""
    log = tmp_path_factory.mktemp("gateway") / "log"
    with GatewayProcess(log, "--server", server.address, "--processes", "2") as gateway:
        body = b'{"input": "Hello.", "response_format": "pcm"}'
        while status_of(f"{gateway.url}/ready") != 200:
            time.sleep(0.05)
        assert [status_of(f"{gateway.url}/nothing"), status_of(f"{gateway.url}/v1/audio/speech", body)] == [404, 200]
        told = samples(int(gateway.url.rpartition(":")[2]))
    ended = [json.loads(line) for line in gateway.log.splitlines() if '"request ended"' in line]
    assert {(line["path"], line["status"]) for line in ended} >= {("/nothing", 404), ("/v1/audio/speech", 200)}
    assert all(line["request_id"] and "Hello" not in str(line) for line in ended), "texts are not logged"
    return told


@pytest.fixture
async def names(server: ServerProcess, stub: Any, of_gateway: list[Any]) -> Names:
    """Labels by name of what the server tells after a call that was served and one that failed, and the gateway."""
    await stub.Synthesize(SynthesizeRequest(text="Hello."))
    await failure(stub.Synthesize(SynthesizeRequest()))
    found: Names = defaultdict(set)
    for sample in [*samples(server.metrics_port), *of_gateway]:
        found[sample.name] |= {*sample.labels}
    found["up"] = set()  # which Prometheus adds
    return found


def parts(query: Any) -> Iterator[Any]:
    """Of the expression, itself included."""
    yield query
    inner = [getattr(query, name, None) for name in ("expr", "lhs", "rhs", "vector_selector")]
    for each in [*inner, *getattr(query, "args", ())]:
        if each is not None:
            yield from parts(each)


def asks_in_vain(query: str, legend: str, names: Names) -> list[str]:
    """What no server has."""
    there = list(parts(promql.parse(query)))
    selectors = [part for part in there if isinstance(part, promql.VectorSelector)]
    sums = [part for part in there if isinstance(part, promql.AggregateExpr)]
    assert all(each.modifier is None or each.modifier.type == promql.AggModifierType.By for each in sums)
    groups = [each.modifier.labels if each.modifier else [] for each in sums]
    vain = [each.name for each in selectors if each.name not in names]
    matched = [(each.name, matcher.name) for each in selectors for matcher in each.matchers.matchers]
    vain += [label for name, label in matched if label not in names.get(name, ()) | TARGET]
    known = set().union(*(names.get(each.name, ()) for each in selectors)) | TARGET
    left = set(groups[0]) if groups else known
    vain += [label for group in groups for label in group if label not in known]
    return vain + [label for label in re.findall(r"{{(\w+)}}", legend) if label not in left]


@pytest.mark.slow
async def test_every_query_asks_for_what_a_server_tells(names: Names) -> None:
    assert len(PANELS) >= 10 and len(QUERIES) == len(PANELS) + 1, "the documents have the one to warn by"
    assert {query: asks_in_vain(query, legend, names) for query, legend in QUERIES} == {
        query: [] for query, _ in QUERIES
    }


async def test_every_alert_asks_for_what_there_is_and_has_a_first_step(names: Names) -> None:
    rules = [rule for group in ALERTS["groups"] for rule in group["rules"]]
    heads = re.findall(r"^\| (`.*?`) \| ", WATCHING, re.MULTILINE)
    assert {name for head in heads for name in re.findall(r"`(\w+)`", head)} == {rule["alert"] for rule in rules}
    for rule in rules:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+[mh]", rule.get("for", "1m")) and rule["labels"]["severity"] in ("page", "ticket")
        assert isinstance(promql.parse(rule["expr"]), promql.BinaryExpr), "a threshold"
        assert asks_in_vain(rule["expr"], "", names) == []
        left = re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])
        grouped = [part for part in parts(promql.parse(rule["expr"])) if isinstance(part, promql.AggregateExpr)]
        known = set(grouped[0].modifier.labels) if grouped and grouped[0].modifier else {*TARGET, "pair", "model"}
        assert set(left) <= known, rule["alert"]


@pytest.mark.parametrize(
    ("query", "legend", "vain"),
    [
        ("rate(tts_busy_second_total[1m])", "", ["tts_busy_second_total"]),
        ("sum by (modul) (tts_pair_ready)", "", ["modul"]),
        ('rate(grpc_server_handled_total{status="OK"}[1m])', "", ["status"]),
        ("sum by (model) (tts_pair_ready)", "{{pair}}", ["pair"]),
        ("sum(tts_pair_ready)", "{{instance}}", ["instance"]),
    ],
)
async def test_a_typo_is_seen(query: str, legend: str, vain: list[str], names: Names) -> None:
    assert asks_in_vain(query, legend, names) == vain


def test_panels_take_the_source_that_is_provisioned() -> None:
    """One without a `uid` is the default one, whatever it is called where the dashboard is imported."""
    (source,) = yaml.safe_load((ROOT / "deploy" / "grafana" / "provisioning.yaml").read_text())["datasources"]
    assert source["isDefault"] and source["type"] == "prometheus"
    assert all(panel["datasource"] == {"type": source["type"]} for panel in DASHBOARD["panels"])
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
    assert source["url"] == "http://prometheus:9090" and "prometheus" in compose["services"]
    provider = yaml.safe_load((ROOT / "deploy" / "grafana" / "dashboards.yaml").read_text())["providers"][0]
    mounts = dict(volume.split(":")[:2] for volume in compose["services"]["grafana"]["volumes"])
    assert Path(mounts["./grafana/dashboard.json"]).parent == Path(provider["options"]["path"])
    provisioning = Path("/etc/grafana/provisioning")
    assert Path(mounts["./grafana/provisioning.yaml"]).parent == provisioning / "datasources"
    assert Path(mounts["./grafana/dashboards.yaml"]).parent == provisioning / "dashboards"
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len({*numbers}) == len(numbers)
