"""Layers of models in f16 by the interpreter, against the same layers in f32."""

from __future__ import annotations

import numpy as np
import pytest

from sartor.codegen.ir.variants.routine import Rejected, Routine, Variant, variant_of
from sartor.codegen.routines.cuda.implicit import Implicit
from sartor.codegen.routines.cuda.thread_window import ThreadWindows
from sartor.codegen.routines.cuda.warp_rows import WarpRow
from sartor.codegen.routines.storing.half import Half
from sartor.frontend.imported_model import ImportedModel
from tests.codegen.kernels.cuda.subjects import GPU, Known
from tests.codegen.routines.layer_cases import Cases, in_half
from tests.importing import imported_model
from tools.cuda.layer_run import run_layer

# Inputs, weights and results are rounded to 11 bits.
MAX_ERROR = 4e-3
CUDA = ("cuda",)
ROUTINES: dict[str, Routine] = {
    "convolution": Half(Implicit(storage="f16"), CUDA),
    "product": Half(Implicit(storage="f16"), CUDA),
    "depthwise": Half(ThreadWindows(storage="f16"), CUDA),
    "softmax": Half(WarpRow(storage="f16"), CUDA),
}


@pytest.fixture(scope="module")
def known() -> tuple[Known, ImportedModel]:
    cases = Cases()
    cases.convolution("convolution", (1, 16, 5, 6), 32, residual=True)
    cases.product("product", (20, 64), (64, 24))
    cases.convolution("depthwise", (1, 12, 7, 5), 12, groups=12)
    cases.rows("softmax", "Softmax", (3, 5, 37))
    found = imported_model(in_half(cases.model()), target=GPU)
    return Known.of(cases), found


@pytest.mark.parametrize("name", ROUTINES)
def test_they_are_as_exact_as_their_type(name: str, known: tuple[Known, ImportedModel]) -> None:
    wide, imported = known
    layer = next(each for each in imported.graph.layers if name in each.nodes)
    sizes = ROUTINES[name].parameters(layer.task, GPU)
    assert not isinstance(sizes, Rejected), sizes
    found = variant_of(ROUTINES[name], layer.task, sizes[0], GPU)
    assert isinstance(found, Variant), found
    inputs = [wide.inputs[each.index].astype(np.float16) for each in layer.inputs]
    weights = [np.asarray(imported.weights[weight]) for weight in layer.weights]
    assert {each.dtype for each in (*found.implementation.inputs, *found.implementation.outputs)} == {"f16"}
    result, _ = run_layer(found.implementation, layer.task, inputs, weights)
    expected = wide.expected[name].astype(np.float64)
    error = np.abs(result.astype(np.float64) - expected).max() / np.abs(expected).max()
    assert 0 < error < MAX_ERROR


def test_only_the_model_s_own_type_is_kept() -> None:
    """Without the wrapper the same kernel is one of lower precision."""
    assert Implicit(storage="f16").traits.precision == "f16"
    assert Half(Implicit(storage="f16")).traits.precision is None
