"""What the doctor finds with one of its checks."""

from collections.abc import Callable

from sonorant.engine.tools.doctor import Finding, Verdict, finding
from sonorant.service import doctor
from sonorant.service.settings import ServiceConfig


def finding_of(check: Callable[[ServiceConfig], tuple[Verdict, str]], config: ServiceConfig) -> Finding:
    return finding("checked", check, config, doctor._EXPECTED)
