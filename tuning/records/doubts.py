"""Stored measurements that do not hold any more: other programs computed meanwhile, and now they do not."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sartor.tuning.records.measurement import Measurement, MeasurementKey


class Doubts:
    """Doubts measurements beside which other programs took processors, once the machine is quiet.

    What this compilation measured is not doubted: each measurement is made again once.
    """

    def __init__(self, is_quiet: Callable[[], bool]) -> None:
        """Begin with nothing measured; ``is_quiet`` is called at most once, when it first matters."""
        self._ask = is_quiet
        self._is_quiet: bool | None = None
        self._made = set[MeasurementKey]()

    def made(self, key: MeasurementKey) -> None:
        """Note that this compilation measured it."""
        self._made.add(key)

    def about(self, measurement: Measurement) -> bool:
        """Whether a stored measurement should be made again."""
        if measurement.foreign_load == 0 or measurement.key in self._made:
            return False
        if self._is_quiet is None:
            self._is_quiet = self._ask()
        return self._is_quiet

    def holding(self, known: Mapping[MeasurementKey, Measurement]) -> dict[MeasurementKey, Measurement]:
        """The stored measurements that hold."""
        return {key: measurement for key, measurement in known.items() if not self.about(measurement)}
