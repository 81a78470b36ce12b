"""Operators that were wrong once are right at the values where their types end; a planted fault is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

from sartor import backend
from sartor.errors import UnsupportedModelError
from tools.extremes import __main__ as command
from tools.extremes.__main__ import main
from tools.extremes.comparison import Outcome, Verdict, expected_results
from tools.extremes.deviations import DEVIATIONS, REFUSALS
from tools.extremes.operators import OPERATORS, case
from tools.extremes.values import TYPES, Array, convertible, extremes


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        *[("Abs", "uint8"), ("Abs", "uint64"), ("Neg", "int32"), ("Neg", "int64"), ("Sign", "float32")],
        *[("Sinh", "float32"), ("Asinh", "float64"), ("Acosh", "float16"), ("Cosh", "float32")],
        *[("ReduceL2", "float64"), ("ReduceLogSumExp", "float16"), ("Pow", "float16"), ("Max", "float32")],
        *[("Cast float16", "float64"), ("Elu", "float16"), ("Atanh", "float32")],
    ],
)
def test_what_was_wrong_once_is_right(operator: str, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([operator, "--types", kind]) == 0
    assert capsys.readouterr().out == f"{operator} of {kind}: right\n1 right\n"


def test_angles_are_right_but_for_those_beyond_the_bound(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["Sin", "--types", "float32", "float64"]) == 0
    told = capsys.readouterr().out
    assert "Sin of float32: explained, as angles from 2**26 on" in told
    assert "Sin of float64: refused, as IREE 3.13 lacks the function in float64" in told
    assert "1 explained, 1 refused" in told


def _computing(monkeypatch: pytest.MonkeyPatch, compute: Callable[..., Array]) -> None:
    """Let the backend compute something else."""

    class Computing:
        def run(self, inputs: Any) -> list[Any]:
            return [np.asarray(compute(*inputs))]

    monkeypatch.setattr(backend, "prepare", lambda model: Computing())


def test_a_wrong_result_is_shown_with_its_operands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _computing(monkeypatch, lambda x: np.where(x == 100, 99, x).astype(x.dtype))
    assert main(["Identity", "--types", "int16"]) == 1
    told = capsys.readouterr().out
    assert "Identity of int16: wrong" in told
    assert "of 100: 99; ONNX Runtime 100, ONNX 100" in told


@pytest.mark.parametrize(("wrong_at", "verdict"), [(None, "explained"), (88.0, "wrong"), (-1e-3, "wrong")])
def test_a_deviation_explains_only_what_it_covers(
    wrong_at: float | None, verdict: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def sine(x: Array) -> Array:
        known = np.where(np.isfinite(x) & (np.abs(x) >= 2.0**26), 0, np.sin(x))
        return np.where(x == np.float32(wrong_at or 0), 1e-4, known).astype(x.dtype) if wrong_at else known

    _computing(monkeypatch, sine)
    assert main(["Sin", "--types", "float32"]) == (verdict == "wrong")
    told = capsys.readouterr().out
    assert f"Sin of float32: {verdict}" in told
    assert "    of " not in told.replace(f"    of {wrong_at}: ", "")


@pytest.mark.parametrize("key", DEVIATIONS, ids=" of ".join)
@pytest.mark.parametrize("fault", ["others", "short", "shape"])
def test_no_deviation_explains_everything(
    key: tuple[str, str], fault: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built = case(*key)
    assert built is not None
    with np.errstate(all="ignore"):
        right = next(each for _, each in expected_results(built))
        wrong = {
            "others": right * right.dtype.type(3) + right.dtype.type(2),
            "short": right.astype(np.float32 if right.dtype == np.float16 else np.float16),
            "shape": right[..., None],
        }
    _computing(monkeypatch, lambda *_: wrong[fault])
    assert main([key[0], "--types", key[1]]) == 1
    assert f"{' of '.join(key)}: wrong" in capsys.readouterr().out


def test_a_refusal_that_is_not_listed_is_a_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(model: ModelProto) -> None:
        raise UnsupportedModelError("node 'the_node' is too hard")

    monkeypatch.setattr(backend, "prepare", refuse)
    assert main(["Sin", "--types", "float64"]) == 0
    assert main(["Sin", "--types", "float32"]) == 1
    assert "Sin of float32: refused\n    node 'the_node' is too hard\n1 refused\n" in capsys.readouterr().out


def test_entries_that_do_not_happen_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "outcome", lambda *_: Outcome(Verdict.RIGHT))
    assert main([]) == 0
    told = capsys.readouterr().out
    assert told.count("no longer refused, as IREE 3.13 lacks ") == len(REFUSALS)
    assert told.count("nothing is explained, as ") == sum(map(len, DEVIATIONS.values()))
    assert main(["Sin"]) == 0
    assert "no longer" not in capsys.readouterr().out


def test_operators_that_are_not_known_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["Divide"])
    assert "no such operator: Divide" in capsys.readouterr().err


def test_most_operators_have_a_model_in_some_type() -> None:
    lacking = [operator for operator in OPERATORS if not any(case(operator, kind) for kind in TYPES)]
    assert lacking == []


@pytest.mark.parametrize("kind", TYPES)
def test_operands_are_of_their_type_and_differ(kind: str) -> None:
    values = extremes(kind)
    assert values.dtype == np.dtype(kind)
    assert np.isnan(values).any() if values.dtype.kind == "f" else len({*values.tolist()}) == values.size


def test_casts_are_only_of_what_fits() -> None:
    assert convertible(extremes("float32"), "uint8").max() < 256
    assert convertible(extremes("float64"), "int64").max() < 2.0**63


def test_integers_are_not_divided_by_0() -> None:
    for operator in ("Div", "Mod"):
        found = case(operator, "int8")
        assert found is not None
        assert found.feeds["y"].all()
