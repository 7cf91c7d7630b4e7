"""What the owner hands to a server process when it starts it."""

from dataclasses import dataclass

from sonorant.service.admission.ledger import Ledger
from sonorant.service.settings import ServiceConfig


@dataclass(frozen=True, slots=True)
class Handed:
    config: ServiceConfig
    ledger: Ledger  # for the entries of this process
