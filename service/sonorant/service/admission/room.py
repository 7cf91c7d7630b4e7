"""The permits that one server process gives, of each kind that there is."""

from collections.abc import Callable

from sonorant.service.admission.ledger import Counted, Ledger
from sonorant.service.admission.limits import Limits
from sonorant.service.admission.permits import Permits
from sonorant.service.admission.sessions import Sessions

MAX_UPLOADS = 16  # calls that bring a voice at the same time, of all callers together


class Room:
    def __init__(self, ledger: Ledger, num_callers: Callable[[], int], max_sessions: int) -> None:
        """`num_callers`: how many callers share what there is; see `Permits`."""
        self.num_callers = num_callers
        self.limits = Limits(ledger)
        self.sessions = Sessions(max_sessions, num_callers, ledger)
        self.uploads = Permits(Counted.UPLOADS, MAX_UPLOADS, num_callers, ledger)
