"""Layers on rows, windows and models in f16 by the interpreter, and models of their run times."""

from __future__ import annotations

import numpy as np
import pytest

from sartor.codegen.analysis.task_bounds import kind_and_sizes
from sartor.codegen.analysis.task_facts import task_facts
from sartor.codegen.ir.machines.core import WIDE, core_of_gpu
from sartor.codegen.ir.machines.cuda import ARCHITECTURES
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Rejected, Routine, Variant, choices_of, variant_of
from sartor.codegen.kernels.cuda import costs
from sartor.codegen.kernels.cuda.costs import AttentionCost
from sartor.codegen.kernels.cuda.window import ThreadWindow
from sartor.codegen.kernels.emit.gpu.threads import ThreadAssembler
from sartor.codegen.kernels.tensor_cores.instructions import HALF
from sartor.codegen.routines.cuda.implicit import Implicit
from sartor.codegen.routines.cuda.thread_window import ThreadWindows
from sartor.codegen.routines.cuda.warp_rows import WarpRow
from sartor.codegen.routines.storing.half import Half
from sartor.frontend.imported_model import ImportedModel
from tests.codegen.kernels.cuda.subjects import GPU, Known, built
from tests.codegen.routines.layer_cases import Cases, in_half
from tests.importing import imported_model
from tools.cuda.assembler.models import MODELS
from tools.cuda.layer_run import run_layer
from tools.cuda.memory import KernelFault


@pytest.fixture(scope="module")
def known() -> Known:
    cases = Cases()
    cases.rows("softmax", "Softmax", (3, 5, 37))
    cases.rows("norm", "LayerNormalization", (6, 200), 2)
    cases.rows("long", "Softmax", (2, 5000))
    return Known.of(cases)


@pytest.mark.parametrize("name", ["softmax", "norm"])
@pytest.mark.parametrize(("storage", "most"), [(None, 2e-6), ("f16", 2e-3)])
def test_rows_are_right(name: str, storage: str | None, most: float, known: Known) -> None:
    error, (counts,) = known.error(name, built(WarpRow(storage=storage), known.layer(name), {}))
    assert error < most
    assert counts.shared_bytes == 0


def test_rows_that_do_not_fit_registers_are_refused(known: Known) -> None:
    found = variant_of(WarpRow(), known.layer("long").task, {}, GPU)
    assert isinstance(found, Rejected)
    assert "rows of 5000 elements" in found.reason


def test_a_lane_that_is_not_asked_is_found(known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = ThreadAssembler.from_lane
    monkeypatch.setattr(ThreadAssembler, "from_lane", lambda self, value, distance: ask(self, value, distance & 15))
    error, _ = known.error("softmax", built(WarpRow(), known.layer("softmax"), {}))
    assert error > 1e-2


def test_a_row_beyond_the_last_is_found(known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ThreadAssembler, "minimum", lambda self, one, other: one)
    code = built(WarpRow(), known.layer("softmax"), {})
    with pytest.raises(KernelFault, match="of a buffer of"):
        known.error("softmax", code)


MAX_ERROR = 1e-6


@pytest.fixture(scope="module")
def window_known() -> Known:
    cases = Cases()
    cases.convolution("depthwise", (2, 12, 5, 7), 12, groups=12, residual=True)
    cases.convolution("stride", (1, 6, 9, 8), 6, stride=2, groups=6)
    cases.convolution("wide", (1, 5, 7, 9), 5, (7, 5), groups=5)
    cases.pool("maximum", "MaxPool", (1, 8, 9, 9), (1, 8, 5, 5), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    cases.pool("average", "GlobalAveragePool", (2, 8, 6, 6), (2, 8, 1, 1))
    return Known.of(cases)


@pytest.mark.parametrize("pixels", [1, 2, 4])
@pytest.mark.parametrize("name", ["depthwise", "stride", "wide", "maximum"])
def test_a_window_is_right(name: str, pixels: int, window_known: Known) -> None:
    error, _ = window_known.error(name, built(ThreadWindows(), window_known.layer(name), {"pixels": pixels}))
    assert error < MAX_ERROR


@pytest.mark.parametrize(("storage", "most"), [(None, MAX_ERROR), ("f16", 1e-3)])
def test_all_of_an_image_is_a_window(storage: str | None, most: float, window_known: Known) -> None:
    error, _ = window_known.error(
        "average", built(ThreadWindows(storage=storage), window_known.layer("average"), {"pixels": 1})
    )
    assert error < most


def test_an_edge_that_is_not_checked_is_found(window_known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    code = built(ThreadWindows(), window_known.layer("depthwise"), {"pixels": 2})
    monkeypatch.setattr(ThreadAssembler, "within", lambda self, index, end: True)
    with pytest.raises(KernelFault, match="of a buffer of"):
        window_known.error("depthwise", code)


def test_threads_without_work_are_found(window_known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    code = built(ThreadWindows(), window_known.layer("stride"), {"pixels": 1})
    monkeypatch.setattr(ThreadWindow, "_work", property(lambda self: 128))
    with pytest.raises(KernelFault, match="of a buffer of"):
        window_known.error("stride", code)


# Inputs, weights and results are rounded to 11 bits.
HALF_MODELS_MAX_ERROR = 4e-3
CUDA = ("cuda",)
ROUTINES: dict[str, Routine] = {
    "convolution": Half(Implicit(storage="f16"), CUDA),
    "product": Half(Implicit(storage="f16"), CUDA),
    "depthwise": Half(ThreadWindows(storage="f16"), CUDA),
    "softmax": Half(WarpRow(storage="f16"), CUDA),
}


@pytest.fixture(scope="module")
def half_models_known() -> tuple[Known, ImportedModel]:
    cases = Cases()
    cases.convolution("convolution", (1, 16, 5, 6), 32, residual=True)
    cases.product("product", (20, 64), (64, 24))
    cases.convolution("depthwise", (1, 12, 7, 5), 12, groups=12)
    cases.rows("softmax", "Softmax", (3, 5, 37))
    found = imported_model(in_half(cases.model()), target=GPU)
    return Known.of(cases), found


@pytest.mark.parametrize("name", ROUTINES)
def test_they_are_as_exact_as_their_type(name: str, half_models_known: tuple[Known, ImportedModel]) -> None:
    wide, imported = half_models_known
    layer = next(each for each in imported.graph.layers if name in each.nodes)
    sizes = choices_of(ROUTINES[name], layer.task, GPU)
    assert not isinstance(sizes, Rejected), sizes
    found = variant_of(ROUTINES[name], layer.task, sizes[0], GPU)
    assert isinstance(found, Variant), found
    inputs = [wide.inputs[each.index].astype(np.float16) for each in layer.inputs]
    weights = [np.asarray(imported.weights[weight]) for weight in layer.weights]
    assert {each.dtype for each in (*found.implementation.inputs, *found.implementation.outputs)} == {"f16"}
    result, _ = run_layer(found.implementation, layer.task, inputs, weights)
    expected = wide.expected[name].astype(np.float64)
    error = np.abs(result.astype(np.float64) - expected).max() / np.abs(expected).max()
    assert 0 < error < HALF_MODELS_MAX_ERROR


def test_only_the_model_s_own_type_is_kept() -> None:
    """Without the wrapper the same kernel is one of lower precision."""
    assert Implicit(storage="f16").traits.precision == "f16"
    assert Half(Implicit(storage="f16")).traits.precision is None


COSTS_GPU = core_of_gpu(ARCHITECTURES["sm_80"])


@pytest.fixture(scope="module")
def attentions() -> dict[int, dict[str, int]]:
    """Sizes of attentions that are checked with the assembler, one for each number of keys."""
    imported = imported_model(MODELS["attention"](), target=Target.create("cuda", "sm_80"))
    fused = [fusion.layer.task for fusion in imported.graph.fusions]
    return {task.inputs[0].shape[-2]: dict(kind_and_sizes(task_facts(task))[1]) for task in fused if task.inputs}


@pytest.mark.parametrize(("keys", "small", "large"), [(128, 4, 2), (1024, 32, 16), (197, 7, 4)])
def test_an_attention_waits_for_each_block_of_keys_once(
    keys: int, small: int, large: int, attentions: dict[int, dict[str, int]]
) -> None:
    model = AttentionCost(HALF)
    by_32, by_64 = (model.cycles(attentions[keys], {"block": block, "warps": 4}, COSTS_GPU) for block in (32, 64))
    assert by_32 - by_64 == pytest.approx((small - large) * costs._BLOCK_LATENCY)


def test_no_model_of_a_gpu_is_that_of_a_cpu(attentions: dict[int, dict[str, int]]) -> None:
    with pytest.raises(ValueError, match="that of a GPU"):
        AttentionCost(HALF).cycles(attentions[128], {"block": 32, "warps": 4}, WIDE)
