"""What exporters write is prepared, and the prepared model computes what ONNX Runtime computes of the file."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto

from sartor.onnx_model.graphs.graph import static_shape
from sartor.runtime.driver.counts import cut_outputs
from tests.plugin.onnx_model.builders import Array, run
from tests.plugin.onnx_model.conftest import Prepare
from tests.plugin.onnx_model.exported_kinds import KINDS, Form

FORMS = {f"{kind}: {name}": form for kind, forms in KINDS.items() for name, form in forms.items()}


def _prepared(form: Form, prepare_quickly: Prepare) -> ModelProto:
    # Binding sizes forgets what is declared behind them.
    is_open = {value.name: static_shape(value.type) is None for value in form.model.graph.input}
    shapes = {name: array.shape for name, array in form.feeds.items() if is_open[name]}
    model: ModelProto = prepare_quickly(form.model, shapes, widens=True).model
    return model


@pytest.mark.parametrize("name", FORMS)
def test_it_is_prepared_and_right(name: str, prepare_quickly: Prepare) -> None:
    form = FORMS[name]
    values = run(_prepared(form, prepare_quickly), form.feeds)
    results = cut_outputs(list(values), list(values.values()))
    for result, right in zip(results, run(form.model, form.feeds).values(), strict=True):
        _is_near(result, right, form.tolerance)


def _is_near(result: Array, right: Array, tolerance: float) -> None:
    assert (result.shape, result.dtype) == (right.shape, right.dtype)
    if right.dtype.kind == "f":
        np.testing.assert_allclose(result, right, rtol=0, atol=tolerance * float(np.abs(right).max()))
    else:
        np.testing.assert_allclose(result.astype(np.int64), right.astype(np.int64), rtol=0, atol=int(tolerance))
