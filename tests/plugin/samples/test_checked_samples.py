"""What is found out about samples and the user's measure before anything is tuned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sartor.errors import UsageError
from sartor.frontend.imported_model import ImportedModel
from sartor.samples.checked_samples import check_measure
from sartor.samples.sample_sets import sample_set, samples_of_calls
from sartor.tuning.errors.error_budget import ErrorBudget
from sartor.tuning.errors.error_measures import RELATIVE, ErrorMeasure
from sartor.tuning.workers.pool import WorkerPool


def _measure(folder: Path, returned: str) -> ErrorMeasure:
    path = folder / f"returns_{len(returned)}.py"
    path.write_text(f"def error(outputs, expected):\n    return {returned}\n", encoding="utf-8")
    return ErrorMeasure.parse(f"{path}:error")


def test_a_measure_that_no_module_could_meet_is_found_out_first(
    imported_of: Callable[[str], ImportedModel], tmp_path: Path
) -> None:
    imported = imported_of("softmax")
    samples = sample_set(imported, None, narrow=False)
    with WorkerPool(1) as pool:
        for returned, said in (
            ("-1", "returned -1, 0 or more was expected"),
            ("1 / 0", "ZeroDivisionError"),
            ("float('nan')", "not a number"),
            ("0.25", "returned 0.25 for outputs that are as expected, where 0.001 is allowed"),
        ):
            with pytest.raises(UsageError, match=said):
                check_measure(imported, samples, pool, ErrorBudget(_measure(tmp_path, returned), 1e-3))
        check_measure(
            imported, samples, pool, ErrorBudget(_measure(tmp_path, "abs(outputs[0] - expected[0]).max()"), 1e-3)
        )
        check_measure(imported, samples, pool, ErrorBudget(RELATIVE, 1e-3))


def test_calls_one_after_another_get_different_samples(imported_of: Callable[[str], ImportedModel]) -> None:
    imported = imported_of("softmax")
    samples = sample_set(imported, None, narrow=False)
    assert len(samples) == 1
    found = [*samples_of_calls(imported, samples, 4).since(0)]
    assert len({array.tobytes() for sample in found for array in sample.values()}) == 4
    for name, array in samples.first.items():
        np.testing.assert_array_equal(found[0][name], array)
