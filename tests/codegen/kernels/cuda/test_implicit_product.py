"""Implicit products by the interpreter: right results without races or bank conflicts, and planted faults are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from sartor.codegen.ir.packing import RoundMantissa
from sartor.codegen.ir.variants.routine import Implementation, Rejected, choices_of
from sartor.codegen.kernels.emit.gpu.threads import ThreadAssembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.tensor_cores import implicit_product, staging
from sartor.codegen.kernels.tensor_cores.instructions import MatrixInstruction
from sartor.codegen.kernels.tensor_cores.results import WarpSums
from sartor.codegen.kernels.tensor_cores.staging import PixelRows
from sartor.codegen.kernels.tensor_cores.tiling import BlockTiling
from sartor.codegen.routines.cuda.implicit import Implicit
from tests.codegen.kernels.cuda.subjects import GPU, Known, built
from tests.codegen.routines.layer_cases import Cases
from tools.cuda.layer_run import run_layer
from tools.cuda.memory import KernelFault

SMALL = BlockTiling(32, 32, 64, 2, 2, 3)
WIDE = BlockTiling(64, 32, 128, 2, 2, 4)
SPLIT = replace(SMALL, split=3)

# Sums in another order, and 2^-21 of each number is lost; f16 has 11 bits.
MAX_ERROR = {None: 1e-6, "tf32": 1e-3, "f16": 1.5e-3, "bf16": 1.2e-2}


@pytest.fixture(scope="module")
def known() -> Known:
    cases = Cases()
    cases.convolution("padded", (1, 20, 5, 7), 36, residual=True)
    cases.convolution("odd", (1, 5, 6, 5), 19, (3, 2), pads=[1, 0, 0, 1], stride=(2, 1), dilation=(1, 2))
    cases.convolution("batch", (3, 16, 4, 4), 32, (1, 1))
    cases.convolution("planar", (2, 3, 7, 6), 20, stride=2)
    cases.convolution("planar_pixel", (2, 3, 5, 7), 24, (1, 1))
    cases.product("gelu", (1, 35, 48), (48, 40), gelu=True)
    cases.gemm("row", 1, 150, 10)
    cases.product("scores", (2, 3, 17, 40), (2, 3, 40, 24), weight=False, bias=False)
    cases.product("context", (3, 33, 70), (3, 70, 36), weight=False, bias=False, gelu=True)
    cases.product("odd_columns", (20, 36), (36, 18), weight=False, bias=False)
    cases.convolution("whole_steps", (1, 160, 3, 3), 32, (1, 1))
    cases.convolution("whole_taps", (1, 16, 5, 4), 32)
    cases.product("plain", (9, 16), (16, 32), bias=False)
    cases.product("whole_depth", (2, 20, 64), (2, 64, 32), weight=False, bias=False)
    return Known.of(cases)


@pytest.mark.parametrize(
    "name", ["padded", "odd", "batch", "planar", "planar_pixel", "gelu", "row", "scores", "context", "odd_columns"]
)
@pytest.mark.parametrize("tiling", [SMALL, WIDE], ids=["small", "wide"])
def test_a_product_is_right_without_races_or_bank_conflicts(name: str, tiling: BlockTiling, known: Known) -> None:
    code = built(Implicit(), known.layer(name), tiling.parameters())
    error, (counts,) = known.error(name, code)
    assert error < MAX_ERROR[None]
    assert (counts.conflicts, counts.shared_bytes) == (1, tiling.shared_bytes)


def test_an_input_of_few_channels_is_read_in_planes_where_words_are_copied_one_by_one(known: Known) -> None:
    layouts = {
        storage: built(Implicit(storage=storage), known.layer(name), SMALL.parameters()).inputs[0].layout
        for storage, name in ((None, "planar"), ("f16", "padded"))
    }
    assert layouts == {None: "nchw", "f16": "nhwc"}
    found = Implicit(storage="f16").build(known.layer("planar").task, SMALL.parameters(), GPU)
    assert isinstance(found, Rejected)


def test_activations_that_are_not_swizzled_conflict(known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ThreadAssembler, "xor", lambda self, one, other: one)
    for storage, times in ((None, 4), ("f16", 4)):
        error, (counts,) = known.error(
            "context", built(Implicit(storage=storage), known.layer("context"), SMALL.parameters())
        )
        assert error < MAX_ERROR[storage]
        assert counts.conflicts == times


def test_two_activations_in_8_bits_are_refused(known: Known) -> None:
    found = choices_of(Implicit(storage="i8"), known.layer("scores").task, GPU)
    assert isinstance(found, Rejected)
    assert "two activations in 8 bits" in found.reason


@pytest.mark.parametrize("storage", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["padded", "batch", "gelu", "scores", "context", "odd_columns"])
def test_narrower_types_are_right(name: str, storage: str, known: Known) -> None:
    code = built(Implicit(storage=storage), known.layer(name), SMALL.parameters())
    error, _ = known.error(name, code)
    assert 1e-5 < error < MAX_ERROR[storage]


@pytest.mark.parametrize("name", ["padded", "row", "context"])
def test_a_reduction_may_be_split(name: str, known: Known) -> None:
    code = built(Implicit(), known.layer(name), SPLIT.parameters())
    error, (parts, added) = known.error(name, code)
    assert error < MAX_ERROR[None]
    assert parts.groups % SPLIT.split == 0 < added.groups
    assert added.shared_bytes == 0


@pytest.mark.parametrize(("name", "split"), [("whole_steps", 3), ("whole_taps", 4), ("whole_depth", 3)])
def test_shares_beyond_the_end_of_a_reduction_add_nothing(name: str, split: int, known: Known) -> None:
    """A reduction of 10, 9 and 4 whole steps, and shares of 4, 3 and 2."""
    code = built(Implicit(), known.layer(name), replace(SMALL, split=split).parameters())
    error, _ = known.error(name, code)
    assert error < MAX_ERROR[None]


LARGEST = float(np.finfo(np.float32).max)
(LAST_NAN,) = np.array([0x7FFFFFFF], np.uint32).view(np.float32)
SPECIAL = np.array([np.inf, -np.inf, np.nan, LAST_NAN, LARGEST, -LARGEST, 1e-40, -1e-40, 0.7], np.float32)


@pytest.mark.parametrize("arithmetic", [None, "tf32"])
@pytest.mark.parametrize("name", ["plain", "whole_depth"])
def test_infinities_and_numbers_beside_them_are_multiplied(name: str, arithmetic: str | None, known: Known) -> None:
    """A weight is finite, and two activations may both be infinite."""
    layer = known.layer(name)
    left, right = (np.zeros(each.shape, np.float32) for each in (*layer.task.inputs, *layer.task.weights))
    left[..., : len(SPECIAL), 5] = SPECIAL
    right[..., 5, :] = 0.3
    right[..., 5, ::2] = -0.3
    if name == "whole_depth":
        right[..., 5, :7] = [*SPECIAL[:6], 0.7]
    split = [left, right][: len(layer.inputs)], [left, right][len(layer.inputs) :]
    with np.errstate(all="ignore"):
        found, _ = run_layer(built(Implicit(arithmetic=arithmetic), layer, SMALL.parameters()), layer.task, *split)
        expected = (left.astype(np.float64) @ right.astype(np.float64)).astype(np.float32)
    # Denormal numbers have few bits, of which TF32 cuts more.
    denormal = np.isin(left[..., 5], np.array([1e-40, -1e-40], np.float32))
    np.testing.assert_allclose(found[~denormal], expected[~denormal], rtol=MAX_ERROR[arithmetic])
    np.testing.assert_allclose(found[denormal], expected[denormal], rtol=0.05, atol=2e-42)


def check(known: Known, name: str, code: Implementation) -> None:
    """Raise KernelFault if a layer's code does what is not defined, or computes something else."""
    error, _ = known.error(name, code)
    if error > MAX_ERROR[None]:
        raise KernelFault(f"wrong by {error}")


def without_swizzle(asm: ThreadAssembler, row: Index, unit: Index, units: int) -> Index:
    return asm.add(asm.mul(row, units), unit)


def fault_missing_barrier(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ThreadAssembler, "barrier", lambda self: None)


def fault_waiting_for_too_few(patch: pytest.MonkeyPatch) -> None:
    wait = ThreadAssembler.wait_for_copies
    patch.setattr(ThreadAssembler, "wait_for_copies", lambda self, pending: wait(self, pending + 1))


def fault_other_swizzle_where_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(implicit_product, "swizzled", without_swizzle)


def fault_halo(patch: pytest.MonkeyPatch) -> None:
    inside = ThreadAssembler.within
    patch.setattr(ThreadAssembler, "within", lambda self, index, end: inside(self, index, end + 1))


def fault_first_tap(patch: pytest.MonkeyPatch) -> None:
    tap = staging.RowCopies._tap
    patch.setattr(staging.RowCopies, "_tap", lambda self, asm, position: tap(self, asm, asm.add(position, 20)))


def fault_rows_beyond_the_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WarpSums, "_row_exists", lambda self, asm, row, down: True)


def fault_reduction_beyond_the_end(patch: pytest.MonkeyPatch) -> None:
    whole = vars(PixelRows)["depth"].fget
    patch.setattr(PixelRows, "depth", property(lambda self: whole(self) + self.channels))


def fault_stage_that_is_still_read(patch: pytest.MonkeyPatch) -> None:
    following = implicit_product._Writer._next
    patch.setattr(implicit_product._Writer, "_next", lambda self, stage: following(self, following(self, stage)))


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (fault_missing_barrier, "without a barrier between"),
        (fault_waiting_for_too_few, "while a copy to it is under way"),
        (fault_halo, "of a buffer of"),
        (fault_first_tap, "wrong"),
        (fault_rows_beyond_the_end, "of a buffer of"),
        (fault_reduction_beyond_the_end, "of a buffer of"),
        (fault_other_swizzle_where_read, "wrong"),
        (fault_stage_that_is_still_read, "while a copy to it is under way"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_planted_fault_is_found(
    fault: Callable[[pytest.MonkeyPatch], None], said: str, known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    code = built(Implicit(), known.layer("padded"), SMALL.parameters())
    with pytest.raises(KernelFault, match=said):
        check(known, "padded", code)


def test_rows_that_are_not_swizzled_conflict(known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "swizzled", without_swizzle)
    monkeypatch.setattr(implicit_product, "swizzled", without_swizzle)
    for tiling, times in ((SMALL, 4), (WIDE, 8)):
        code = built(Implicit(), known.layer("batch"), tiling.parameters())
        error, (counts,) = known.error("batch", code)
        assert error < MAX_ERROR[None]
        assert counts.conflicts == times


@pytest.mark.parametrize("name", ["padded", "odd", "gelu"])
def test_tf32_is_a_precision_of_its_own(name: str, known: Known) -> None:
    code = built(Implicit(arithmetic="tf32"), known.layer(name), SMALL.parameters())
    error, (counts,) = known.error(name, code)
    assert 10 * MAX_ERROR[None] < error < MAX_ERROR["tf32"]
    assert counts.conflicts == 1


def test_operands_of_tf32_are_rounded_and_not_cut(known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    rounded, _ = known.error("gelu", built(Implicit(arithmetic="tf32"), known.layer("gelu"), SMALL.parameters()))
    monkeypatch.setattr(MatrixInstruction, "split", lambda self, fragment, is_packed=False: (fragment,))
    monkeypatch.setattr(RoundMantissa, "apply", lambda self, array: array)
    cut, _ = known.error("gelu", built(Implicit(arithmetic="tf32"), known.layer("gelu"), SMALL.parameters()))
    assert cut > 1.5 * rounded
