"""Checks numbers of rows that callers give: a model's tables end somewhere, and nothing tells a module so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sartor.errors import UsageError
from sartor.runtime.driver.device_array import DeviceArray
from sartor.runtime.driver.signature import Array


class RowLimits:
    """Inputs all of whose elements are rows of tables of a model.

    Args:
        rows: of the shortest table that each of these inputs indexes, by its name.
    """

    def __init__(self, rows: Mapping[str, int]) -> None:
        self._rows = rows

    def check(self, inputs: Iterable[tuple[str, Array | DeviceArray]]) -> None:
        """Make sure that inputs name rows that there are; negative ones count from the last.

        An input in the memory of another device is not read: there such a number becomes the nearest row.

        Raises:
            UsageError: if not; the message names the input, the number and what is permitted.
        """
        if not self._rows:
            return
        for name, value in inputs:
            rows = self._rows.get(name)
            if rows is None:
                continue
            if not isinstance(value, DeviceArray):
                _check(name, value, rows)
            elif value.shares_host_memory:
                _check(name, value.to_host(), rows)


def _check(name: str, array: Array, rows: int) -> None:
    if array.size == 1:
        # Most calls of a decoder have one token.
        least = most = int(array.item())
    elif array.size:
        least, most = int(array.min()), int(array.max())
    else:
        return
    if least < -rows or most >= rows:
        wrong = most if most >= rows else least
        raise UsageError(
            f"input '{name}' has {wrong}, and the model's table has {rows} rows: expected numbers from 0 to "
            f"{rows - 1}, or from {-rows} to -1, which count from the end"
        )
