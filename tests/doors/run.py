"""Native classes and clients of Riva, in the environment of the frameworks that judge the gateway, too:
`python -m tests.doors.run`, or `make test-doors`.

Arguments go to pytest.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.gateway.stock.run import HERE as STOCK
from tests.gateway.stock.run import python_of

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def main() -> int:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "clients", ROOT / "proto"))),
        "DOORS_SERVER_PYTHON": sys.executable,
    }
    python = python_of(STOCK / "frameworks")
    command = [python, "-m", "pytest", "-q", "-c", HERE / "pytest.ini", "--rootdir", ROOT, HERE, *sys.argv[1:]]
    return subprocess.run(command, cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
