"""Runs `sonorant-gateway`, in one process or in several."""

import sys
from dataclasses import replace

from sonorant.gateway.processes.process import run_process
from sonorant.gateway.processes.supervisor import supervise
from sonorant.gateway.settings import parse_args
from sonorant.hosting.children import processes_of_cores
from sonorant.settings import AUTO


def main() -> None:
    config = parse_args()
    if config.processes == AUTO:
        config = replace(config, processes=processes_of_cores())
    sys.exit(supervise(config) if config.processes > 1 else run_process(config))
