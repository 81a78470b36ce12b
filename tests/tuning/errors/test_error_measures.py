"""Error measures: what they are on known outputs, and how a user's own function fails."""

from __future__ import annotations

import math
import pickle
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from sartor.errors import UsageError
from sartor.tuning.errors import error_measures
from sartor.tuning.errors.error_measures import ErrorMeasure, cosine_distance, top1_disagreement

ROWS = np.array([[0.1, 0.9, 0.0], [0.6, 0.3, 0.1]], np.float32)


def _user(folder: Path, code: str, function: str = "error") -> str:
    path = folder / "own.py"
    path.write_text(code, encoding="utf-8")
    return f"{path}:{function}"


@pytest.mark.parametrize("name", ["relative", "cosine", "top1", "tokens"])
def test_equal_outputs_have_no_error(name: str) -> None:
    measure = ErrorMeasure.parse(name)
    assert str(measure) == name
    assert measure.of_sample([ROWS, ROWS[0, :2]], [ROWS, ROWS[0, :2]]) == pytest.approx(0.0, abs=1e-12)
    assert pickle.loads(pickle.dumps(measure)) == measure


@pytest.mark.parametrize("name", ["relative", "cosine", "top1", "tokens"])
def test_another_shape_or_number_of_outputs_is_no_agreement(name: str) -> None:
    measure = ErrorMeasure.parse(name)
    assert measure.of_sample([ROWS[:1]], [ROWS]) >= 1
    assert measure.of_sample([ROWS], [ROWS, ROWS[:, :2]]) >= 1


def test_relative_is_of_the_worst_output() -> None:
    error = ErrorMeasure.parse("relative").of_sample([ROWS, ROWS + 0.09], [ROWS, ROWS])
    assert error == pytest.approx(0.1, rel=1e-5)


def test_cosine_distance() -> None:
    x, y = np.array([3.0, 0.0]), np.array([0.0, 3.0])
    assert cosine_distance(y, x) == pytest.approx(1.0)
    assert cosine_distance(-x, x) == pytest.approx(2.0)
    assert cosine_distance(x, x + y) == pytest.approx(1 / 3)
    assert cosine_distance(0 * x, 0 * x) == 0.0
    assert cosine_distance(0 * x, x) == 1.0
    assert cosine_distance(np.array([np.nan, 1.0]), x) == math.inf


def test_cosine_distance_sees_scale() -> None:
    x = np.array([3.0, -4.0, 5.0, 2.0])
    assert cosine_distance(1000 * x, x) == pytest.approx(1.0, abs=0.01)
    assert cosine_distance(x / 1000, x) == pytest.approx(1.0, abs=0.01)
    assert cosine_distance(1e200 * x, 1e-200 * x) == pytest.approx(1.0)
    assert cosine_distance(1.01 * x, x) == pytest.approx(0.01**2 / 2, rel=0.02)


def test_cosine_distance_looks_past_what_is_not_finite_and_at_integers() -> None:
    x = np.array([3.0, np.nan, 4.0, -np.inf])
    assert cosine_distance(x, x) == 0.0
    assert cosine_distance(np.where(np.isfinite(x), 0.0, x), x) == 1.0
    assert cosine_distance(np.array([1, 2]), np.array([1, 2])) == 0.0
    assert cosine_distance(np.array([0, 5]), np.array([5, 0])) == pytest.approx(1.0)


def test_top1_is_the_share_of_rows_that_disagree() -> None:
    swapped = ROWS[:, [1, 0, 2]]
    assert top1_disagreement(np.vstack([ROWS[:1], swapped[1:]]), ROWS) == 0.5
    assert top1_disagreement(swapped, ROWS) == 1.0
    assert top1_disagreement(ROWS * 3 + 1, ROWS) == 0.0
    assert top1_disagreement(np.full_like(ROWS, np.nan), ROWS) == 1.0
    assert top1_disagreement(np.array([1, 2, 3, 4]), np.array([1, 2, 3, 5])) == 0.25


def test_top1_passes_over_axes_of_one_element() -> None:
    images = ROWS.reshape(2, 3, 1, 1)
    assert top1_disagreement(images, images) == 0.0
    assert top1_disagreement(images[:, ::-1], images) == 0.5
    assert top1_disagreement(ROWS[0, ::-1] * [1, 1, 20], ROWS[0]) == 1.0


def test_top1_of_one_column_is_the_share_of_elements_that_are_far_off() -> None:
    column = np.linspace(-1, 1, 10)[:, None]
    assert top1_disagreement(column * 1.05, column) == 0.0
    assert top1_disagreement(np.where(column > 0.5, 0, column), column) == pytest.approx(0.3)
    assert top1_disagreement(-column, column) == 1.0


def test_top1_compares_what_is_a_number() -> None:
    holes = np.where(ROWS.max() == ROWS, np.nan, ROWS)
    assert top1_disagreement(holes, holes) == 0.0
    assert top1_disagreement(ROWS, holes) == 0.5


def test_samples_are_averaged_where_that_means_something() -> None:
    assert ErrorMeasure.parse("top1").of_samples([0.0, 1.0]) == 0.5
    assert ErrorMeasure.parse("relative").of_samples([0.1, 0.3]) == 0.3
    assert ErrorMeasure.parse("cosine").of_samples([]) == 0.0


def test_a_users_function_gets_lists_of_arrays(tmp_path: Path) -> None:
    code = "def error(outputs, expected):\n    return sum(abs(a - b).sum() for a, b in zip(outputs, expected))\n"
    measure = ErrorMeasure.parse(_user(tmp_path, code))
    assert measure.of_sample([ROWS, ROWS], [ROWS, ROWS - 1]) == pytest.approx(6.0)
    assert measure.of_samples([0.0, 1.0]) == 0.5
    assert str(tmp_path) in str(measure)
    assert pickle.loads(pickle.dumps(measure)).of_sample([ROWS], [ROWS]) == 0.0


def test_a_users_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.py' is not there; a file with a function 'error' was expected"):
        ErrorMeasure.parse(f"{tmp_path / 'none.py'}:error")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def error(outputs, expected):\n    return 1 / 0\n", "error' failed: ZeroDivisionError: division by zero"),
        ("def error(outputs):\n    return 1\n", "error' failed: TypeError"),
        ("def error(outputs, expected):\n    return 'much'\n", "error' failed: ValueError"),
        ("def error(outputs, expected):\n    return float('nan')\n", "not a number"),
        ("def error(outputs, expected):\n    return -1\n", "error' returned -1, 0 or more was expected"),
        ("def error(outputs, expected):\n    return 1j\n", "error' failed: TypeError"),
        ("def error(outputs, expected):\n    return outputs\n", "error' failed: TypeError"),
        ("def error(outputs, expected):\n    raise SystemExit(3)\n", "error' failed: SystemExit: 3"),
        ("def error(outputs, expected):\n    raise KeyboardInterrupt\n", "error' failed: KeyboardInterrupt"),
        ("def error(outputs, expected):\n    return error(outputs, expected)\n", "error' failed: RecursionError"),
    ],
)
def test_what_goes_wrong_in_a_users_function_names_it(tmp_path: Path, code: str, message: str) -> None:
    measure = ErrorMeasure.parse(_user(tmp_path, code))
    with pytest.raises(UsageError, match=message):
        measure.of_sample([ROWS], [ROWS])


@pytest.mark.parametrize(
    "code",
    [
        "import time\ndef error(outputs, expected):\n    while time.time() < END:\n        pass\n",
        "import time\ndef error(outputs, expected):\n    time.sleep(3600)\n",
        "import time\ntime.sleep(3600)\n",
    ],
)
def test_a_function_that_does_not_return_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.setattr(error_measures, "_MOST_SECONDS", 0.2)
    with pytest.raises(UsageError, match=r"own.py(:error)?' has not returned after 0.2 s"):
        ErrorMeasure.parse(_user(tmp_path, code.replace("END", str(time.time() + 2)))).of_sample([ROWS], [ROWS])


@pytest.mark.parametrize(
    ("code", "function", "message"),
    [
        ("def error(outputs, expected:\n", "error", "failed: SyntaxError"),
        ("import no_such_module_anywhere\n", "error", "failed: ModuleNotFoundError"),
        ("def other(outputs, expected):\n    return 0\n", "error", "no function 'error'"),
        ("error = 1\n", "error", "no function 'error'"),
        ("import sys\nsys.exit()\n", "error", "failed: SystemExit"),
    ],
)
def test_a_file_that_cannot_be_used_is_found_out_at_once(
    tmp_path: Path, code: str, function: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        ErrorMeasure.parse(_user(tmp_path, code, function))


_WITH_A_DATACLASS = """
from __future__ import annotations
from dataclasses import dataclass

import beside_own

@dataclass
class Weights:
    first: float = 2.0

def error(outputs, expected):
    import later_beside_own
    return Weights().first * beside_own.WEIGHT * later_beside_own.WEIGHT
"""


def test_a_file_may_have_dataclasses_and_import_what_is_beside_it(tmp_path: Path) -> None:
    for number, name in enumerate(("beside_own", "later_beside_own"), 3):
        (tmp_path / f"{name}.py").write_text(f"WEIGHT = {number}", encoding="utf-8")
    before, files = [*sys.path], {*tmp_path.iterdir(), tmp_path / "own.py"}
    measure = ErrorMeasure.parse(_user(tmp_path, _WITH_A_DATACLASS))
    assert measure.of_sample([ROWS], [ROWS]) == 24.0
    assert sys.path == before
    assert {*tmp_path.iterdir()} == files


def test_a_file_that_fails_leaves_no_module(tmp_path: Path) -> None:
    before = {*sys.modules}
    with pytest.raises(UsageError):
        ErrorMeasure.parse(_user(tmp_path, "raise ValueError"))
    assert not [name for name in {*sys.modules} - before if "own" in name]


@pytest.mark.parametrize("text", ["accuracy", "own.py:", ":error", "user", "/nowhere/own.py:error"])
def test_no_measure_of_that_name(text: str) -> None:
    with pytest.raises(UsageError, match=r"no error measure|not a Python file|is not there"):
        ErrorMeasure.parse(text)


def test_a_link_to_itself_is_no_file(tmp_path: Path) -> None:
    loop = tmp_path / "loop.py"
    loop.symlink_to(loop)
    with pytest.raises(UsageError, match=r"loop\.py"):
        ErrorMeasure.parse(f"{loop}:error")
