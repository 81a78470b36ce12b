"""Products of 8-bit integers by the interpreter, on numbers that 8 bits represent: exact sums, one rounding."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sartor.codegen.ir.variants.routine import Implementation, Rejected, choices_of, variant_of
from sartor.codegen.kernels.tensor_cores import integer_result
from sartor.codegen.kernels.tensor_cores.integer_result import FilterPanels
from sartor.codegen.kernels.tensor_cores.tiling import BlockTiling
from sartor.codegen.routines.cuda.implicit import Implicit
from sartor.codegen.routines.cuda.thread_window import ThreadWindows
from tests.codegen.kernels.cuda.subjects import GPU, Known, built, result_range
from tests.codegen.routines.layer_cases import Cases

SMALL = BlockTiling(32, 32, 64, 2, 2, 3)
WIDE = BlockTiling(64, 32, 128, 2, 2, 4)
HALF_A_STEP = 0.501
EXACT = 2e-6


@pytest.fixture(scope="module")
def known() -> Known:
    cases = Cases()
    cases.convolution("padded", (1, 20, 5, 7), 36, residual=True)
    cases.convolution("odd", (1, 12, 6, 5), 19, (3, 2), pads=[1, 0, 0, 1], stride=(2, 1), dilation=(1, 2))
    cases.convolution("batch", (3, 16, 4, 4), 34, (1, 1))
    cases.product("gelu", (1, 35, 48), (48, 40), gelu=True)
    cases.product("row", (1, 152), (152, 10))
    cases.convolution("few", (1, 3, 5, 5), 16)
    cases.convolution("depthwise", (1, 12, 6, 7), 12, groups=12)
    cases.pool("pool", "MaxPool", (1, 8, 7, 6), (1, 8, 4, 3), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 0])
    return Known.of(cases, quantised=True)


def steps(known: Known, name: str, code: Implementation) -> float:
    """The largest error of code as a multiple of the step of the result's range."""
    error, _ = known.error(name, code)
    expected = known.expected[name]
    return error * float(np.abs(expected).max()) / result_range(expected).scale


@pytest.mark.parametrize("name", ["padded", "odd", "batch", "gelu", "row"])
@pytest.mark.parametrize("tiling", [SMALL, WIDE], ids=["small", "wide"])
def test_sums_are_exact_and_results_are_rounded_once(name: str, tiling: BlockTiling, known: Known) -> None:
    code = built(Implicit(storage="i8"), known.layer(name), tiling.parameters())
    assert code.ranges[-1] is None
    assert 0.1 < steps(known, name, code) < HALF_A_STEP


@pytest.mark.parametrize("name", ["padded", "row"])
def test_results_may_stay_in_f32(name: str, known: Known) -> None:
    routine = Implicit("implicit_to_f32", storage="i8", output="f32")
    error, (counts,) = known.error(name, built(routine, known.layer(name), SMALL.parameters()))
    assert error < EXACT
    assert counts.conflicts == 1


@pytest.mark.parametrize("name", ["depthwise", "pool"])
def test_windows_store_8_bits(name: str, known: Known) -> None:
    assert steps(known, name, built(ThreadWindows(storage="i8"), known.layer(name), {"pixels": 2})) < HALF_A_STEP


def test_channels_that_no_copy_can_move_are_refused(known: Known) -> None:
    found = variant_of(Implicit(storage="i8"), known.layer("few").task, SMALL.parameters(), GPU)
    assert isinstance(found, Rejected)
    assert "rows of 3 channels" in found.reason


def test_sums_are_not_split(known: Known) -> None:
    (wide,) = (layer for layer in known.imported.graph.layers if layer.name == "row")
    found = choices_of(Implicit(storage="i8"), wide.task, GPU)
    assert not isinstance(found, Rejected)
    assert {each["split"] for each in found} == {1}


def fault_padding_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(integer_result, "_touching", lambda asm, pixel, axis: (0, axis.kernel))


def fault_scales_of_another_channel(patch: pytest.MonkeyPatch) -> None:
    load = FilterPanels.load
    patch.setattr(
        FilterPanels, "load", lambda self, asm, memory, row, column: load(self, asm, memory, row, asm.mul(column, 0))
    )


@pytest.mark.parametrize("fault", [fault_padding_counts, fault_scales_of_another_channel])
def test_a_planted_fault_is_found(
    fault: Callable[[pytest.MonkeyPatch], None], known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    code = built(Implicit(storage="i8"), known.layer("padded"), SMALL.parameters())
    assert steps(known, "padded", code) > 1
