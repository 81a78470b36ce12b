"""Separable convolutions as one kernel by the interpreter and the assembler: right results, and planted faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from sartor.codegen.ir.layer import Fusion
from sartor.codegen.ir.machines.cuda import ARCHITECTURES
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, Variant, choices_of, integer, variant_of
from sartor.codegen.kernels.emit.gpu.threads import ThreadAssembler
from sartor.codegen.kernels.tensor_cores.tiling import BlockTiling
from sartor.codegen.routines.cuda.separable import TensorSeparable
from tests.codegen.kernels.cuda.subjects import GPU, Array
from tests.codegen.routines.harness import Subject, compiled
from tests.importing import imported_model
from tests.tiny_models import Builder
from tools.cuda.assembler.models import MODELS
from tools.cuda.assembler.ptx import assemble, assembler, instructions, ptx_of
from tools.cuda.interpreter import Counts
from tools.cuda.layer_run import run_layer
from tools.cuda.memory import KernelFault

SMALL = BlockTiling(32, 32, 64, 2, 1, 3)
DEEP = BlockTiling(32, 64, 128, 2, 2, 4)
# Images, channels, rows, columns, channels of the result, kernel, stride, padding, whether there is a residual.
CASES = {
    "plain": (1, 32, 6, 7, 32, 3, 1, 1, False),
    "residual": (2, 24, 5, 5, 18, 3, 1, 1, True),
    "stride": (1, 20, 9, 8, 40, 3, 2, 1, False),
    "large": (1, 12, 9, 11, 7, 5, 1, 2, False),
    "unpadded": (3, 16, 5, 6, 16, 3, 1, 0, False),
    "pixel": (1, 70, 1, 1, 34, 1, 1, 0, False),
    "odd": (1, 9, 4, 4, 8, 3, 1, 1, False),
}
RIGHT = [name for name in CASES if name != "odd"]
MAX_ERROR = {None: 1e-6, "tf32": 1e-3, "f16": 1.5e-3, "bf16": 1.2e-2}


@dataclass(frozen=True)
class Known:
    """A separable convolution, its inputs and weights, and what it computes."""

    fusion: Fusion
    inputs: list[Array]
    weights: list[Array]
    expected: Array

    def built(self, routine: TensorSeparable, tiling: BlockTiling = SMALL, target: Target = GPU) -> Implementation:
        found = variant_of(routine, self.fusion.layer.task, tiling.parameters(), target)
        assert isinstance(found, Variant), found
        return found.implementation

    def error(self, code: Implementation) -> tuple[float, Counts]:
        """The largest error relative to the largest output, and what the kernel did."""
        result, (counts,) = run_layer(code, self.fusion.layer.task, self.inputs, self.weights)
        return float(np.abs(result - self.expected).max() / np.abs(self.expected).max()), counts


def add(builder: Builder, name: str) -> tuple[dict[str, tuple[int, ...]], tuple[int, ...]]:
    """Add a depthwise and a 1x1 convolution to a model; returns the shapes of its inputs and of its output."""
    images, depth, rows, columns, channels, kernel, stride, padding, added = CASES[name]
    random = np.random.default_rng(depth)

    def weight(*shape: int) -> str:
        return builder.constant(random.standard_normal(shape).astype(np.float32))

    attributes = {"group": depth, "pads": [padding] * 4, "strides": [stride] * 2}
    shapes: dict[str, tuple[int, ...]] = {f"{name}.x": (images, depth, rows, columns)}
    window = weight(depth, 1, kernel, kernel), weight(depth)
    middle = builder.op("Conv", f"{name}.depthwise", f"{name}.x", *window, **attributes)
    middle = builder.op("Relu", f"{name}.relu", middle)
    extents = [(each + 2 * padding - kernel) // stride + 1 for each in (rows, columns)]
    result = (images, channels, *extents)
    last = f"{name}.sums" if added else name
    builder.op("Conv", last, middle, weight(channels, depth, 1, 1), weight(channels))
    if added:
        shapes[f"{name}.r"] = result
        builder.op("Add", name, last, f"{name}.r")
    return shapes, result


@pytest.fixture(scope="module")
def known() -> dict[str, Known]:
    builder = Builder()
    added = {name: add(builder, name) for name in CASES}
    inputs = [pair for shapes, _ in added.values() for pair in shapes.items()]
    imported = imported_model(
        builder.model(inputs, [(name, result) for name, (_, result) in added.items()]), target=GPU
    )
    random = np.random.default_rng(3)
    given = {each.name: random.standard_normal(each.type.shape).astype(np.float32) for each in imported.graph.inputs}
    session = onnxruntime.InferenceSession(imported.path, providers=["CPUExecutionProvider"])
    expected = dict(zip(CASES, session.run(list(CASES), given), strict=True))
    arrays, found = list(given.values()), {}
    for fusion in imported.graph.fusions:
        name = fusion.layer.name.split(".")[0]
        weights = [np.asarray(imported.weights[one]) for one in fusion.layer.weights]
        found[name] = Known(fusion, [arrays[ref.index] for ref in fusion.layer.inputs], weights, expected[name])
    assert found.keys() == CASES.keys()
    return found


@pytest.mark.parametrize("tiling", [SMALL, DEEP], ids=["small", "deep"])
@pytest.mark.parametrize("name", RIGHT)
def test_both_convolutions_are_right_without_races_or_bank_conflicts(
    name: str, tiling: BlockTiling, known: dict[str, Known]
) -> None:
    error, counts = known[name].error(known[name].built(TensorSeparable(), tiling))
    assert error < MAX_ERROR[None]
    assert (counts.conflicts, counts.shared_bytes) == (1, tiling.shared_bytes)


@pytest.mark.parametrize("dtype", ["tf32", "f16", "bf16"])
@pytest.mark.parametrize("name", ["plain", "residual", "stride"])
def test_narrower_types_are_right(name: str, dtype: str, known: dict[str, Known]) -> None:
    routine = TensorSeparable(arithmetic="tf32") if dtype == "tf32" else TensorSeparable(storage=dtype)
    error, _ = known[name].error(known[name].built(routine))
    assert 1e-5 < error < MAX_ERROR[dtype]


def test_channels_that_do_not_divide_into_vectors_are_refused(known: dict[str, Known]) -> None:
    """The result has an even number of channels, the image an odd one."""
    found = variant_of(TensorSeparable(), known["odd"].fusion.layer.task, SMALL.parameters(), GPU)
    assert isinstance(found, Rejected)
    assert "9 channels do not divide" in found.reason


def check(known: Known, code: Implementation) -> None:
    """Raise KernelFault if the code does what is not defined, or computes something else."""
    error, _ = known.error(code)
    if not error < 100 * MAX_ERROR[None]:
        raise KernelFault(f"wrong by {error}")


def fault_missing_barrier(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ThreadAssembler, "barrier", lambda self: None)


def fault_padding_that_is_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ThreadAssembler, "within", lambda self, index, end: True)


def fault_channels_beyond_the_last(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ThreadAssembler, "less", lambda self, index, end: True)


@pytest.mark.parametrize(
    ("plant", "name"),
    [
        (fault_missing_barrier, "stride"),
        (fault_padding_that_is_read, "plain"),
        (fault_channels_beyond_the_last, "pixel"),
    ],
)
def test_planted_faults_are_found(
    plant: Callable[[pytest.MonkeyPatch], None], name: str, known: dict[str, Known], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = known[name].built(TensorSeparable())
    plant(monkeypatch)
    with pytest.raises(KernelFault):
        check(known[name], code)


def test_a_stage_of_fewer_vectors_than_threads_is_refused(known: dict[str, Known]) -> None:
    sizes = replace(SMALL, rows=16, warp_rows=8).parameters()
    found = variant_of(TensorSeparable(), known["plain"].fusion.layer.task, sizes, GPU)
    assert isinstance(found, Rejected)
    assert "windows of a stage" in found.reason


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("storage", [None, "f16", "bf16"])
def test_all_variants_assemble_without_spills(architecture: str, storage: str | None, known: dict[str, Known]) -> None:
    target, routine, layer = Target.create("cuda", architecture), TensorSeparable(storage=storage), known["plain"]
    sizes = choices_of(routine, layer.fusion.layer.task, target)
    assert not isinstance(sizes, Rejected)
    codes = {f"v{index}": layer.built(routine, BlockTiling.of(size), target) for index, size in enumerate(sizes)}
    for text in ptx_of(compiled({"s": Subject(layer.fusion.layer, {}, codes)}, target)):
        found = instructions(text, "mma.sync", "cp.async.cg", "st.shared", "bar.sync")
        assert min(found.values()) > 0
        if assembler() is not None:
            assert all(each.spilled == each.stack == 0 and each.fits for each in assemble(text, architecture))


@pytest.mark.parametrize("arithmetic", [None, "tf32"])
def test_tilings_whose_stages_leave_no_registers_are_not_offered(
    arithmetic: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 144 channels to 24 with a residual, 56x56: for sm_90 four stages of 64 rows spilled 8 bytes."""
    onnx.save(MODELS["separable"](), tmp_path / "separable.onnx")
    target = Target.create("cuda", "sm_90")
    imported = imported_model(tmp_path / "separable.onnx", target=target)
    tasks = [fusion.layer.task for fusion in imported.graph.fusions]

    def spilling() -> int:
        offered = [choices_of(TensorSeparable(arithmetic=arithmetic), task, target) for task in tasks]
        kept = [sizes for each in offered if not isinstance(each, Rejected) for sizes in each]
        return sum(integer(each["stages"]) > 3 and integer(each["rows"]) > 32 for each in kept)

    assert spilling() == 0
    monkeypatch.setattr(TensorSeparable, "_spills", lambda *_: False)
    assert spilling() > 0
