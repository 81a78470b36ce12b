"""Operators that were wrong once are right at the values where their types end; a planted fault is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sartor import backend
from tools.extremes.__main__ import main
from tools.extremes.operators import OPERATORS, case
from tools.extremes.values import TYPES, convertible, extremes


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
    assert "node 'the_node' (Sin) computes in float64, which IREE 3.13 lacks for this operator" in told


def test_a_wrong_result_is_shown_with_its_operands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Wrong:
        def run(self, inputs: Any) -> list[Any]:
            return [np.where(inputs[0] == 100, 99, inputs[0]).astype(inputs[0].dtype)]

    monkeypatch.setattr(backend, "prepare", lambda model: Wrong())
    assert main(["Identity", "--types", "int16"]) == 1
    told = capsys.readouterr().out
    assert "Identity of int16: wrong" in told
    assert "of 100: 99; ONNX Runtime 100, ONNX 100" in told


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
