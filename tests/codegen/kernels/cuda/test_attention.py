"""Attention as one kernel by the interpreter: right results without races or bank conflicts, and planted faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import onnxruntime
import pytest

from sartor.codegen.ir.layer import Fusion
from sartor.codegen.ir.machines.cuda import ARCHITECTURES
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Rejected, choices_of, variant_of
from sartor.codegen.kernels.attention.fused_attention import FusedAttention
from sartor.codegen.kernels.attention.score_rows import ScoreRows, SoftmaxRows
from sartor.codegen.kernels.emit.gpu.threads import ThreadAssembler
from sartor.codegen.kernels.tensor_cores.results import Sums
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.routines.cuda.attention import AttentionKernel
from sartor.dialect_passes.fuse_layers import find_fusions
from sartor.frontend.imported_model import ImportedModel
from tests.codegen.kernels.cuda.subjects import GPU, Array
from tests.codegen.routines.harness import Subject, compiled
from tests.importing import imported_model
from tests.tiny_models import Builder
from tools.cuda.assembler.ptx import assemble, assembler, instructions, ptx_of
from tools.cuda.interpreter import Counts
from tools.cuda.layer_run import run_layer
from tools.cuda.memory import KernelFault

# Heads, rows, depth, keys, columns of values, and whether there is a mask that leaves out all keys of the first block.
CASES = {
    "small": (2, 10, 16, 12, 16, False),
    "blocks": (1, 35, 40, 70, 24, True),
    "wide": (1, 16, 8, 64, 64, False),
    "long": (1, 8, 8, 102, 8, False),
    "odd": (2, 7, 8, 37, 8, False),
    "odd_masked": (1, 8, 8, 37, 8, True),
    "other": (1, 8, 8, 8, 8, False),
    "masked_by_row": (1, 48, 8, 16, 8, True),
    "turned": (2, 19, 24, 40, 16, True),
    "turned_odd": (1, 16, 16, 37, 8, False),
    "turned_heads": (3, 8, 40, 70, 8, False),
}
# Shapes of keys that a layer before the attention turns, and how.
TURNED = {
    "turned": ((2, 40, 24), (0, 2, 1)),
    "turned_odd": ((1, 37, 16), (0, 2, 1)),
    "turned_heads": ((70, 3, 40), (1, 2, 0)),
}
KINDS = {"other": "LogSoftmax"}
MAX_ERROR = {None: 2e-6, "tf32": 2e-3, "f16": 2e-3, "bf16": 2e-2}


@dataclass(frozen=True)
class Known:
    """An attention, its inputs, and what it computes."""

    fusion: Fusion
    inputs: list[Array]
    expected: Array

    def error(self, routine: AttentionKernel, warps: int = 2, block: int = 32) -> tuple[float, Counts]:
        """The largest error relative to the largest output, and what the kernel did."""
        found = variant_of(routine, self.fusion.layer.task, {"warps": warps, "block": block}, GPU)
        assert not isinstance(found, Rejected), found.reason
        result, (counts,) = run_layer(found.implementation, self.fusion.layer.task, self.inputs, [])
        return float(np.abs(result - self.expected).max() / np.abs(self.expected).max()), counts


def add(builder: Builder, name: str, softmax: str = "Softmax") -> dict[str, tuple[int, ...]]:
    """Add an attention to a model; returns the shapes of its inputs."""
    heads, rows, depth, keys, columns, masked = CASES[name]
    shapes: dict[str, tuple[int, ...]] = {
        f"{name}.q": (heads, rows, depth),
        f"{name}.k": (heads, depth, keys),
        f"{name}.v": (heads, keys, columns),
    }
    queries, turned, values = shapes
    if name in TURNED:
        shapes[turned], order = TURNED[name]
        turned = builder.op("Transpose", f"{name}.turned", turned, perm=order)
    scores = builder.op("MatMul", f"{name}.scores", queries, turned)
    scores = builder.op("Mul", f"{name}.scaled", scores, builder.constant(np.array(0.5, np.float32)))
    if masked:
        shapes[f"{name}.mask"] = (1, rows if name == "masked_by_row" else 1, keys)
        scores = builder.op("Add", f"{name}.masked", scores, f"{name}.mask")
    builder.op("MatMul", name, builder.op(softmax, f"{name}.chances", scores, axis=-1), values)
    return shapes


@pytest.fixture(scope="module")
def imported() -> ImportedModel:
    builder = Builder()
    inputs = [pair for name in CASES for pair in add(builder, name, KINDS.get(name, "Softmax")).items()]
    outputs = [(name, (heads, rows, columns)) for name, (heads, rows, _, _, columns, _) in CASES.items()]
    return imported_model(builder.model(inputs, outputs), target=GPU)


@pytest.fixture(scope="module")
def known(imported: ImportedModel) -> dict[str, Known]:
    random = np.random.default_rng(3)
    given = {each.name: random.standard_normal(each.type.shape).astype(np.float32) for each in imported.graph.inputs}
    for name in ("blocks.mask", "odd_masked.mask"):
        given[name][..., :35] = -np.inf
    session = onnxruntime.InferenceSession(imported.path, providers=["CPUExecutionProvider"])
    expected = dict(zip(CASES, session.run(list(CASES), given), strict=True))
    arrays = list(given.values())
    return {
        fusion.members[-1]: Known(
            fusion, [arrays[ref.index] for ref in fusion.layer.inputs], expected[fusion.members[-1]]
        )
        for fusion in imported.graph.fusions
        if all(ref.source is None for ref in fusion.layer.inputs)
    }


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, None) for name in ("small", "wide", "odd", "masked_by_row", "turned_odd", "turned_heads")),
        *(("blocks", dtype) for dtype in MAX_ERROR),
        *(("turned", dtype) for dtype in MAX_ERROR),
        # Their rows are keys, so that their number may be odd in types of two bytes too.
        ("turned_odd", "f16"),
    ],
)
def test_attention_is_right_without_races_or_bank_conflicts(
    name: str, dtype: str | None, known: dict[str, Known]
) -> None:
    routine = _routine(dtype)
    error, counts = known[name].error(routine)
    assert error < MAX_ERROR[dtype]
    assert counts.conflicts == 1


def test_other_sizes_are_right(known: dict[str, Known]) -> None:
    error, counts = known["blocks"].error(AttentionKernel(storage="f16"), warps=4, block=64)
    assert error < MAX_ERROR["f16"]
    assert counts.groups == 1


def test_what_is_no_attention_is_refused(known: dict[str, Known]) -> None:
    for name, storage, reason in (
        ("other", None, "no softmax"),
        ("odd_masked", None, "its keys are an odd number, and an operand"),
        ("odd", "f16", "rows of 37 columns cannot be copied"),
    ):
        found = choices_of(AttentionKernel(storage=storage), known[name].fusion.layer.task, GPU)
        assert isinstance(found, Rejected)
        assert reason in found.reason


def test_attention_is_fused_where_the_target_has_kernels_for_it(imported: ImportedModel) -> None:
    members = {fusion.members for fusion in imported.graph.fusions}
    assert ("small.scores", "small.chances", "small") in members
    assert ("turned.scores", "turned.chances", "turned") in members
    assert ("turned.turned", "turned.scores", "turned.chances", "turned") in members
    assert not find_fusions(replace(imported.graph, fusions=())).fusions


def fault_missing_barrier(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ThreadAssembler, "barrier", lambda self: None)


def fault_no_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ThreadAssembler, "wait_for_copies", lambda self, pending: None)


def fault_keys_beyond_the_last(patch: pytest.MonkeyPatch) -> None:
    finish = ScoreRows.finish
    patch.setattr(ScoreRows, "finish", lambda self, sums, first, is_whole: finish(self, sums, first, is_whole=True))


def fault_sums_of_a_lane_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ThreadAssembler, "from_lane", lambda self, value, distance: value)


def fault_sums_are_not_rescaled(patch: pytest.MonkeyPatch) -> None:
    add = SoftmaxRows.add

    def without(
        self: SoftmaxRows, state: list[ir.Value], scores: Sums, sums: Sums
    ) -> tuple[list[ir.Value], Sums, Sums]:
        found, probabilities, _ = add(self, state, scores, sums)
        return found, probabilities, sums

    patch.setattr(SoftmaxRows, "add", without)


def fault_values_in_another_order(patch: pytest.MonkeyPatch) -> None:
    stages = vars(FusedAttention)["value_stages"].fget
    patch.setattr(FusedAttention, "value_stages", property(lambda self: replace(stages(self), paired=False)))


def check(known: Known) -> None:
    """Raise KernelFault if an attention does what is not defined, or computes something else."""
    error, _ = known.error(AttentionKernel())
    if not error < 100 * MAX_ERROR[None]:
        raise KernelFault(f"wrong by {error}")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (fault_missing_barrier, "without a barrier between"),
        (fault_no_wait, "shared memory is read|a copy to it is under way"),
        (fault_keys_beyond_the_last, "wrong"),
        (fault_sums_of_a_lane_alone, "wrong"),
        (fault_sums_are_not_rescaled, "wrong"),
        (fault_values_in_another_order, "wrong"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_planted_fault_is_found(
    fault: Callable[[pytest.MonkeyPatch], None], said: str, known: dict[str, Known], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    with pytest.raises(KernelFault, match=said):
        check(known["long"])


def _routine(kind: str | None) -> AttentionKernel:
    """The routine that computes in a type; None for f32."""
    return AttentionKernel(arithmetic=kind) if kind == "tf32" else AttentionKernel(storage=kind)


SHAPES = {
    None: "m16n8k8.row.col.f32.tf32.tf32",
    "tf32": "m16n8k8.row.col.f32.tf32.tf32",
    "f16": "m16n8k16.row.col.f32.f16.f16",
    "bf16": "m16n8k16.row.col.f32.bf16.bf16",
}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("name", ["wide", "turned"])
def test_the_assembler_finds_registers_enough(
    name: str, kind: str | None, architecture: str, known: dict[str, Known]
) -> None:
    if assembler() is None:
        pytest.skip("ptxas is not installed: pip install nvidia-cuda-nvcc-cu12")
    layer, target = known[name].fusion.layer, Target.create("cuda", architecture)
    found = variant_of(_routine(kind), layer.task, {"warps": 4, "block": 32}, target)
    assert not isinstance(found, Rejected), found.reason
    (text,) = ptx_of(compiled({"s": Subject(layer, {}, {"v": found.implementation})}, target))
    (kernel,) = assemble(text, architecture)
    assert (kernel.stack, kernel.spilled) == (0, 0)
    assert kernel.fits
    assert f"mma.sync.aligned.{SHAPES[kind]}" in text
    assert instructions(text, "bar.sync", "cp.async.wait_group") == {"bar.sync": 1, "cp.async.wait_group": 1}
