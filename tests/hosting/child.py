"""A process for tests of hosting.children: it tells that it serves, if its settings say so, and ends as they say."""

import json
import pickle
import signal
import sys


def main() -> None:
    settings = pickle.load(sys.stdin.buffer)
    if settings.get("deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if settings.get("serves", True):
        print(json.dumps({"event": "serving"}), flush=True)
    if "status" in settings:
        sys.exit(settings["status"])
    sys.stdin.buffer.read()  # until the parent is gone


if __name__ == "__main__":
    main()
