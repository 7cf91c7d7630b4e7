"""The states of a worker pair."""

from enum import StrEnum


class EngineState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"  # the workers went down; live streams wait and continue with the new ones
    FAILED = "failed"  # the workers kept going down, and are not started again
    CLOSED = "closed"
