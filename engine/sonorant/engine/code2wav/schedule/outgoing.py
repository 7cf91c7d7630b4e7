"""What goes to the service next. Pure."""

from collections.abc import Sequence

import numpy as np

from sonorant.engine.ipc.messages import PcmRecord, TextPositions


class Outgoing:
    def __init__(self) -> None:
        self._records: list[PcmRecord] = []
        self._positions: list[TextPositions] = []  # go out ahead of the next records; alone they would wake the service

    def add(self, record: PcmRecord) -> None:
        self._records.append(record)

    def add_positions(self, positions: TextPositions) -> None:
        self._positions.append(positions)

    def take(self) -> list[PcmRecord]:
        """Return all records in order, and forget them."""
        records, self._records = self._records, []
        if records and self._positions:
            records.insert(0, _joined(self._positions))
            self._positions = []
        return records


def _joined(positions: Sequence[TextPositions]) -> TextPositions:
    if len(positions) == 1:
        return positions[0]
    return TextPositions(
        np.concatenate([each.stream_ids for each in positions]),
        np.concatenate([each.frame_indices for each in positions]),
        np.concatenate([each.positions for each in positions]),
    )
