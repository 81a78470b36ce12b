"""Numbers of rows that there are not are refused by name, wherever the numbers lie."""

from __future__ import annotations

import numpy as np
import pytest

from sartor.errors import UsageError
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.device_array import upload
from sartor.runtime.runs.row_limits import RowLimits

LIMITS = RowLimits({"ids": 11})


@pytest.mark.parametrize("numbers", [[], [10], [-11], [0, -11, 10]])
def test_rows_of_the_table_pass(numbers: list[int]) -> None:
    LIMITS.check([("ids", np.array(numbers, np.int32)), ("others", np.array([99]))])


@pytest.mark.parametrize(("numbers", "wrong"), [([11], 11), ([-12], -12), ([0, 99, 3], 99), ([0, 2**40, -13], 2**40)])
def test_others_are_refused(numbers: list[int], wrong: int) -> None:
    said = f"input 'ids' has {wrong}, and .* 11 rows: expected numbers from 0 to 10, or from -11 to -1"
    array = np.array(numbers, np.int64)
    for value in (array, upload(array, open_device("cpu", 1))):
        with pytest.raises(UsageError, match=said):
            LIMITS.check([("ids", value)])
