"""What the process on the other side gets, in this process. Without pytest."""

import os
from typing import TypeVar

from sonorant.engine.ipc.handed import packed, unpacked

T = TypeVar("T")


def other_side(value: T) -> T:
    data, fds = packed(value)
    got: T = unpacked(data, [os.dup(fd) for fd in fds])
    return got
