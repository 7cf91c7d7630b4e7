"""How a worker pair is."""

from enum import StrEnum


class EngineState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"  # the workers went down; live streams wait, and go on with those that come
    FAILED = "failed"  # they keep going down: given up
    CLOSED = "closed"
