"""Which names a gateway answers to. Pure.

A stranger's page may not call a gateway that its visitor can reach. Browsers say whose page it is, but the stranger can
let the page's own name mean this machine (DNS rebinding): then the gateway is asked by a name that it does not know.
"""

import ipaddress
from collections.abc import Iterable

ANY = "*"


class Hosts:
    def __init__(self, listen: str, allowed: Iterable[str]) -> None:
        """`listen`: HOST:PORT of the gateway; `allowed`: more names, or ANY."""
        self._names = {"localhost", _name(listen), *(name.lower() for name in allowed)}

    def has(self, host: str) -> bool:
        """Whether a `Host` header names this gateway. An address always does, since nobody can let it mean another; and
        who sends no name is no browser."""
        name = _name(host)
        return not name or ANY in self._names or name in self._names or name.endswith(".localhost") or _is_address(name)


def _name(host: str) -> str:
    """`host` in lower case, without a port, brackets and the dot that may end a name."""
    name = host.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0].removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
