"""The chart and the dashboard, offline: they are what Kubernetes, the server and Grafana take, and a typo is not."""

import copy
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sonorant.gateway.settings import parse_args as parse_gateway_args
from sonorant.service.config import parse_args
from sonorant.service.settings import ServiceConfig
from tests.deploy.replicas import ROOT

helm = pytest.importorskip("helm_python", reason="make test-chart")
kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="make test-chart")
jsonschema = pytest.importorskip("jsonschema", reason="make test-chart")
grafana = pytest.importorskip("grafana_foundation_sdk.models.dashboard", reason="make test-chart")

from grafana_foundation_sdk.cog.encoder import JSONEncoder  # noqa: E402
from grafana_foundation_sdk.cog.plugins import register_default_plugins  # noqa: E402

# It reads megabytes of schemas anew for each manifest, of which there are hundreds here.
kubernetes_validate.utils.schema_contents = functools.cache(kubernetes_validate.utils.schema_contents)

CHART = ROOT / "deploy" / "chart"
CRDS = {path.stem: json.loads(path.read_text()) for path in (Path(__file__).parent / "crds").glob("*.json")}
VERSIONS = ("1.31", "1.33", "1.35")
FILES = {path.stem: yaml.safe_load(path.read_text()) for path in (CHART / "variants").glob("*.yaml")}
VARIANTS: dict[str, dict[str, Any]] = {
    "gpu": {},
    **FILES,
    "fixed": {"autoscaling": {"by": "none"}, "replicas": 3},
    "with keys": {"apiKeys": {"secret": "keys"}, "test": {"secret": "key"}, "networkPolicy": {"enabled": True}},
}
PLAIN = list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text()))
Manifest = dict[str, Any]


def render(values: dict[str, Any]) -> list[Manifest]:
    with helm.Chart.load(str(CHART)) as chart:
        files = chart.render(copy.deepcopy(values), name="sonorant", namespace="speech")
    texts = [text for name, text in files.items() if name.endswith(".yaml")]
    return [each for text in texts for each in yaml.safe_load_all(text) if each]


def check(manifest: Manifest, version: str) -> None:
    """Raises what either validator raises."""
    if (schema := CRDS.get(manifest["kind"])) is not None:
        jsonschema.validate(manifest, schema)
    else:
        kubernetes_validate.validate(manifest, version, strict=True)


def found(manifests: list[Manifest], kind: str, name: str = "sonorant") -> Manifest:
    """The one of the server, or of another part."""
    names = (name, "sonorant-test") if kind == "Pod" else (name,)
    (one,) = (each for each in manifests if each["kind"] == kind and each["metadata"]["name"] in names)
    return one


def server(manifests: list[Manifest]) -> tuple[Manifest, Manifest]:
    """The pod's spec and its container."""
    pod = found(manifests, "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return pod, container


def settings(container: Manifest, tmp_path: Path) -> ServiceConfig:
    """As the server takes them, on a machine where the checkpoint is there."""
    url = {"SONORANT_VOICES_URL": "postgresql://db/x"} if container.get("env") else {}
    arguments = [each.replace("/models/custom-voice", str(tmp_path)) for each in container["args"]]
    return parse_args(["--listen", "0.0.0.0:50051", *arguments], url)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_is_valid(variant: str, version: str) -> None:
    for manifest in render(VARIANTS[variant]):
        check(manifest, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_plain_manifests_are_valid(version: str) -> None:
    for manifest in PLAIN:
        check(manifest, version)


def test_what_is_off_by_default() -> None:
    assert {each["kind"] for each in render({})} == {
        *("Deployment", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler", "Pod"),
    }


def test_helm_finds_nothing_wrong() -> None:
    assert "ERROR" not in str(helm.lint(str(CHART)))


@pytest.mark.parametrize("variant", VARIANTS)
def test_settings_ports_probes_and_times_fit_together(variant: str, tmp_path: Path) -> None:
    manifests = render(VARIANTS[variant])
    pod, container = server(manifests)
    config = settings(container, tmp_path)
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert (config.listen, config.metrics_listen) == (f"0.0.0.0:{ports['grpc']}", f"0.0.0.0:{ports['metrics']}")
    assert pod["terminationGracePeriodSeconds"] > config.drain_delay_s + config.drain_grace_s
    assert config.drain_delay_s > container["readinessProbe"]["periodSeconds"]
    for probe, path in (("startupProbe", "/ready"), ("readinessProbe", "/ready"), ("livenessProbe", "/metrics")):
        assert container[probe]["httpGet"] == {"path": path, "port": "metrics"}
    selector = found(manifests, "Deployment")["spec"]["selector"]["matchLabels"]
    labels = found(manifests, "Deployment")["spec"]["template"]["metadata"]["labels"]
    services = [found(manifests, "Service", name)["spec"] for name in ("sonorant", "sonorant-headless")]
    assert len(services) == 2 and {each.get("clusterIP") for each in services} == {None, "None"}
    for each in [*(service["selector"] for service in services), selector]:
        assert each.items() <= labels.items()
    assert all(service["ports"][0]["targetPort"] in ports for service in services)
    mounted = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert set(mounted) == {each["name"] for each in pod["volumes"]}
    assert {"/tmp", "/home/sonorant/.triton"} <= set(mounted.values()), "what is written to, as the root is read-only"
    assert container["securityContext"]["readOnlyRootFilesystem"] and pod["securityContext"]["runAsNonRoot"]
    copies = pod.get("initContainers", [])
    assert len(copies) == ("nvidia.com/gpu" in container["resources"]["limits"]), "kernels, which a CPU has none of"
    for copy_ in copies:
        assert copy_["image"] == container["image"]
        assert copy_["command"][-2:] == [f"{mounted['kernels']}/.", copy_["volumeMounts"][0]["mountPath"]]


def test_the_gateway_takes_its_settings_and_reaches_the_servers() -> None:
    manifests = render(VARIANTS["everything"])
    pod = found(manifests, "Deployment", "sonorant-gateway")["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    config = parse_gateway_args(container["args"], {})
    assert container["command"] == ["sonorant-gateway"]
    (port,) = container["ports"]
    assert config.listen == f"0.0.0.0:{port['containerPort']}"
    headless = found(manifests, "Service", "sonorant-headless")["spec"]["ports"][0]["port"]
    assert config.servers == (f"sonorant-headless:{headless}",)
    assert {"speech.example.com", "sonorant-gateway", "sonorant-gateway.speech.svc"} <= set(config.allowed_hosts)
    delay_s = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["spec"]["terminationGracePeriodSeconds"] > delay_s + config.drain_grace_s
    assert delay_s > container["readinessProbe"]["periodSeconds"] * container["readinessProbe"]["failureThreshold"]
    assert {container[probe]["httpGet"]["path"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")} == {
        *("/health", "/ready")
    }
    service = found(manifests, "Service", "sonorant-gateway")["spec"]
    assert service["selector"].items() <= pod["metadata"]["labels"].items()
    servers = found(manifests, "Deployment")["spec"]["selector"]["matchLabels"]
    assert not servers.items() <= pod["metadata"]["labels"].items(), "a call must not go to a gateway"
    clients = found(manifests, "NetworkPolicy")["spec"]["ingress"][0]["from"]
    selectors = [each["podSelector"]["matchLabels"] for each in clients if "podSelector" in each]
    assert any(selector.items() <= pod["metadata"]["labels"].items() for selector in selectors)
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["spec"]["volumes"]}


def test_the_test_pod_is_no_server_and_speaks_to_the_service() -> None:
    for values in VARIANTS.values():
        manifests = render(values)
        pod = found(manifests, "Pod")
        labels = found(manifests, "Deployment")["spec"]["selector"]["matchLabels"]
        assert not labels.items() <= pod["metadata"]["labels"].items()
        (container,) = pod["spec"]["containers"]
        assert container["command"][:2] == ["sonorant", "say"]
        assert container["command"][-2:] == ["--server", "sonorant:50051"]


def test_what_scales_is_a_metric_of_the_server() -> None:
    exposed = (ROOT / "docs" / "operations.md").read_text()
    hpa = found(render({}), "HorizontalPodAutoscaler")
    names = [metric["pods"]["metric"]["name"] for metric in hpa["spec"]["metrics"]]
    assert len(names) == 2 and all(f"`{name}`" in exposed for name in names)
    assert {metric["pods"]["target"]["averageValue"] for metric in hpa["spec"]["metrics"]} == {"700m"}
    assert "replicas" not in found(render({}), "Deployment")["spec"]
    keda = found(render(VARIANTS["everything"]), "ScaledObject")
    assert [names[i] in trigger["metadata"]["query"] for i, trigger in enumerate(keda["spec"]["triggers"])] == [
        True
    ] * 2


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Every key of every object, but for names that are free."""
    if isinstance(value, dict):
        for key, inner in value.items():
            free = {"labels", "matchLabels", "annotations", "limits", "requests", "selector", "nodeSelector"}
            if not (path and path[-1] in free and not isinstance(inner, dict)):
                yield path, key
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from places(inner, (*path, index))


def misspelt(value: Manifest) -> Iterator[tuple[Manifest, str]]:
    """With each key in turn."""
    for path, key in places(value):
        broken = copy.deepcopy(value)
        inner = broken
        for step in path:
            inner = inner[step]
        inner[f"{key}x"] = inner.pop(key)
        yield broken, ".".join(map(str, (*path, key)))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_typo_in_any_manifest_is_caught(version: str) -> None:
    kinds: set[str] = set()
    for manifest in [*PLAIN, *render(VARIANTS["everything"]), found(render({}), "HorizontalPodAutoscaler")]:
        for broken, place in misspelt(manifest):
            if broken.get("kind") is None or broken.get("apiVersion") is None:
                continue  # that one of these is missing is seen by everybody
            with pytest.raises((jsonschema.ValidationError, kubernetes_validate.ValidationError)):
                check(broken, version)
                pytest.fail(f"{manifest['kind']}: {place}")
            kinds.add(manifest["kind"])
    assert {*CRDS, "Deployment", "HorizontalPodAutoscaler", "NetworkPolicy", "Pod"} <= kinds


def keeps(given: Any, wanted: Any) -> bool:
    """Whether all that is wanted is there, beside defaults."""
    if isinstance(wanted, dict):
        return all(key in given and keeps(given[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return len(given) == len(wanted) and all(map(keeps, given, wanted))
    return bool(given == wanted)


def test_grafana_knows_every_key_of_the_dashboard() -> None:
    """Read and written by Grafana's own types it is the same; a key that they do not know, and any typo, is gone."""

    def is_known(dashboard: dict[str, Any]) -> bool:
        try:
            read = grafana.Dashboard.from_json(dashboard)
        except KeyError:  # of a type that there is none of
            return False
        return keeps(json.loads(json.dumps(read, cls=JSONEncoder)), dashboard)

    register_default_plugins()
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "dashboard.json").read_text())
    assert is_known(dashboard)
    dashboard["panels"] = dashboard["panels"][:1]  # they are alike
    assert [place for broken, place in misspelt(dashboard) if is_known(broken)] == []


@pytest.mark.parametrize(
    "values",
    [
        {"replica": 1},
        {"gpu": {"counts": 1}},
        {"gateway": {"replica": 1}},
        {"autoscaling": {"by": "vpa"}},
        {"drain": {"delaySeconds": "5"}},
        {"tls": {"secret": "A B"}},
    ],
)
def test_a_typo_in_the_values_is_caught(values: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=r"schema|additional|must be|allowed|expected|pattern"):
        render(values)


def test_a_setting_that_is_none_is_caught(tmp_path: Path) -> None:
    _, container = server(render({"settings": {"num-slotz": 3}}))
    with pytest.raises(SystemExit):
        settings(container, tmp_path)
