"""The standard streams of a process."""

import os

STDOUT_FILENO, STDERR_FILENO = 1, 2


def open_standard_streams() -> None:
    """Open those of stdin, stdout and stderr that were closed when this process was started. Otherwise a socket would
    get such a number, and libuv ends a process that closes one."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= STDERR_FILENO:
        os.set_inheritable(opened, True)
    os.close(opened)
