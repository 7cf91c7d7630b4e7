"""Runs programs in namespaces of their own, in which they may mount file systems."""

import subprocess
import sys

import pytest


def unshared(*namespaces: str) -> list[str]:
    """What to put before a command that is to have these namespaces, such as `--mount`, of its own, as their root.
    Skips the test if that is not allowed."""
    unshare = ["unshare", "--user", "--map-root-user", *namespaces]
    if subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("this machine allows no user namespaces")
    return unshare


def in_namespace(script: str, *arguments: str, timeout_s: float = 120.0) -> "subprocess.CompletedProcess[str]":
    """`script`: of the shell; "$1" is this Python, "$2" the first argument."""
    command = [*unshared("--mount"), "sh", "-ec", script, "sh", sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
