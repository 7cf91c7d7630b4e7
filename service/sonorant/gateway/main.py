"""Runs `sonorant-gateway`, in one process or in several."""

import sys

from sonorant.gateway.processes.crew import run_crew
from sonorant.gateway.processes.process import run_process
from sonorant.gateway.settings import parse_args


def main() -> None:
    config = parse_args()
    sys.exit(run_crew(config) if config.processes > 1 else run_process(config))
