"""Every kernel stays inside its buffers, writes each number once, and shares no workspace, in bf16 too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import ml_dtypes
import numpy as np
import pytest

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Parameters
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.layers.kernel_layer import KernelRoutine
from sartor.codegen.kernels.loops.staging import interleaved
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.routines.vector.direct import Direct
from sartor.codegen.routines.vector.fused_winograd import FusedWinograd
from sartor.codegen.routines.vector.product import Product
from sartor.codegen.routines.vector.window import SlidingWindow
from sartor.runtime.driver.signature import Array
from sartor.tuning.records.hardware import host
from tests.codegen.kernels.small_kernels import HOST, SmallKernel, floats, run_kernels
from tests.codegen.kernels.tracing import traces
from tests.codegen.routines.harness import layers
from tests.codegen.routines.kernel_cases import EXTREME, extreme_winograd
from tests.codegen.routines.layer_cases import Cases

ROUTINES: Mapping[str, KernelRoutine] = {
    each.name: each
    for each in (
        Direct(),
        Direct("direct_blocked", blocked=True),
        Product(),
        SlidingWindow(),
        SlidingWindow("window_blocked", blocked=True),
        FusedWinograd(),
        FusedWinograd("fused_winograd_blocked", blocked=True),
        FusedWinograd("transforming_winograd", transforms_filters=True),
    )
}
# The layer that each routine is followed on, and the case whose parameters it is given.
LAYERS = {
    "direct": ("few_channels", "images3"),
    "direct_blocked": ("blocks", "uneven_padding"),
    "fused_winograd": ("winograd", "images3"),
    "fused_winograd_blocked": ("winograd_blocks", "uneven_padding"),
    "window": ("apart", "apart_stride3"),
    "window_blocked": ("apart_blocks", "apart_wide_padding"),
    "product": ("rows", "odd"),
}
CHOICES = [(name, parameters) for name, (_, case) in LAYERS.items() for parameters in EXTREME[case][name]]
CHOICES += [("fused_winograd", parameters) for parameters in extreme_winograd(4, 6)]
LAYERS["transforming_winograd"] = LAYERS["fused_winograd"]
CHOICES += [("transforming_winograd", parameters) for parameters in extreme_winograd(4)]
AVX2 = Target.create("cpu", "x86-64-v3")


def _cases() -> Cases:
    cases = Cases()
    cases.convolution("few_channels", (2, 3, 5, 7), 21, residual=True, pads=[2, 0, 1, 3])
    cases.convolution("blocks", (1, 8, 5, 4), 24, (3, 2), pads=[1, 0, 1, 0], stride=2)
    cases.convolution("winograd", (2, 17, 5, 3), 18, residual=True)
    cases.convolution("winograd_blocks", (1, 16, 5, 3), 24)
    cases.convolution("apart", (2, 19, 5, 7), 19, pads=[2, 0, 1, 3], groups=19)
    cases.convolution("apart_blocks", (1, 24, 3, 3), 24, (3, 2), pads=[5] * 4, groups=24)
    cases.product("rows", (7, 5), (5, 21))
    return cases


@pytest.fixture(scope="module")
def tasks() -> dict[str, Task]:
    models = {"traced": lambda: _cases().model()}
    return {layer.name: layer.task for layer, _ in layers(models)}


@pytest.mark.parametrize(("name", "parameters"), CHOICES, ids=str)
def test_each_number_is_written_once_by_the_only_user_of_its_workspace(
    name: str, parameters: Parameters, tasks: dict[str, Task]
) -> None:
    layer = ROUTINES[name].layer(tasks[LAYERS[name][0]], parameters, AVX2)
    reads, written = len(layer.kernel.reads), np.zeros(layer.kernel.results[0].elements, np.int64)
    users = np.zeros(layer.workspace.elements if layer.workspace else 0, np.int64)
    for _, trace in traces(layer):
        assert not any(write.any() for write in trace.writes[:reads])
        assert not trace.reads[reads].any()
        written += trace.writes[reads]
        if layer.workspace is not None:
            users += (trace.reads[-1] + trace.writes[-1]) > 0
    assert (written == 1).all()
    assert (users <= 1).all()


def _extreme(name: str) -> Parameters:
    return next(parameters for routine, parameters in CHOICES if routine == name)


@pytest.mark.parametrize("name", LAYERS)
def test_every_input_and_weight_is_read(name: str, tasks: dict[str, Task]) -> None:
    task = tasks[LAYERS[name][0]]
    layer = ROUTINES[name].layer(task, _extreme(name), AVX2)
    total = [np.zeros(read.elements, np.int64) for read in layer.kernel.reads]
    for _, trace in traces(layer):
        for every, each in zip(total, trace.reads, strict=False):
            every += each
    assert all(each.all() for each in total[: len(task.inputs)])
    assert all(each.any() for each in total)


Memories = Sequence[ir.Value]
Group = tuple[Index, Index, Index]


# Ties, what is too large for bf16, the smallest normal number, and what is no number.
SPECIAL = floats(1 + 2.0**-8, 1 + 3 * 2.0**-8, -1 - 2.0**-8, 1.3, 3.4e38, -3.4e38, 2.0**-126, 0.0, -0.0, np.inf, np.nan)
NUMBERS = np.concatenate([SPECIAL, np.random.default_rng(0).standard_normal(21).astype(np.float32)])
NARROW = NUMBERS.astype(ml_dtypes.bfloat16)
SIZE = len(NUMBERS)


def _copied(asm: Assembler, memories: Memories, group: Group) -> None:
    """All elements through vectors."""
    for start in range(0, SIZE, asm.lanes):
        asm.store(asm.load(memories[0], start, asm.lanes), memories[-1], start, asm.lanes)


def _partly(asm: Assembler, memories: Memories, group: Group) -> None:
    """Zeros, then three elements from the third on, of which two are read."""
    zero = asm.load(memories[0], 0, asm.lanes, present=False)
    for start in range(0, SIZE, asm.lanes):
        asm.store(zero, memories[-1], start, asm.lanes)
    asm.store(asm.load(memories[0], 3, 2), memories[-1], 2, 3)


def _repeated(asm: Assembler, memories: Memories, group: Group) -> None:
    """The fourth element everywhere."""
    for start in range(0, SIZE, asm.lanes):
        asm.store(asm.broadcast(memories[0], 3), memories[-1], start, asm.lanes)


def _doubled(asm: Assembler, memories: Memories, group: Group) -> None:
    """Sums in f32, although both terms are narrow: one and a quarter of bf16's last place, twice."""
    value = asm.load(memories[0], 0, asm.lanes)
    total = asm.sum_of(asm.sum_of(value, value), asm.load(memories[1], 0, asm.lanes))
    for start in range(0, SIZE, asm.lanes):
        asm.store(total, memories[-1], start, asm.lanes)


def _as_stored(asm: Assembler, memories: Memories, group: Group) -> None:
    """Vectors of bf16 that are never widened."""
    for start in range(0, SIZE, asm.lanes):
        asm.store(asm.load_as_stored(memories[0], start, asm.lanes), memories[-1], start, asm.lanes)


def _interleaved(asm: Assembler, memories: Memories, group: Group) -> None:
    """Four vectors in turn, of which all but the last three numbers are stored."""
    vectors = [asm.load_as_stored(memories[0], number * asm.lanes, asm.lanes) for number in range(4)]
    asm.store_all(interleaved(vectors), memories[-1], 0, 4 * asm.lanes)
    asm.store_all(interleaved(vectors[:2]), memories[-1], 4 * asm.lanes, 2 * asm.lanes - 3)


def _kernels(target: Target, lanes: int) -> dict[str, SmallKernel]:
    def kernel(write: object, inputs: Sequence[Array], dtype: str, size: int = SIZE) -> SmallKernel:
        return SmallKernel(write, inputs, size, dtype=dtype, lanes=lanes, target=target)  # type: ignore[arg-type]

    plenty = np.arange(4 * lanes).astype(ml_dtypes.bfloat16)
    terms = [np.full(lanes, 1.0).astype(ml_dtypes.bfloat16), np.full(lanes, 2.0**-9).astype(ml_dtypes.bfloat16)]
    return {
        "widened": kernel(_copied, [NARROW], "f32"),
        "rounded": kernel(_copied, [NUMBERS], "bf16"),
        "narrow": kernel(_copied, [NARROW], "bf16"),
        "as_stored": kernel(_as_stored, [NARROW], "bf16"),
        "partly": kernel(_partly, [NARROW], "bf16"),
        "partly_rounded": kernel(_partly, [NUMBERS], "bf16"),
        "repeated": kernel(_repeated, [NARROW], "f32"),
        "doubled": kernel(_doubled, terms, "f32"),
        "interleaved": kernel(_interleaved, [plenty], "bf16", 6 * lanes),
    }


def _wide(array: Array) -> Array:
    return array.astype(np.float32)


def _partial(array: Array) -> Array:
    result = np.zeros(SIZE, np.float32)
    result[2:4] = _wide(array.astype(ml_dtypes.bfloat16))[3:5]
    return result


@pytest.mark.parametrize(("target", "lanes"), [(HOST, 4), (HOST, 16), (AVX2, 8)])
def test_memory_of_bf16_is_widened_and_rounded(target: Target, lanes: int) -> None:
    if target is AVX2 and not {"avx2", "fma"} <= set(host().features):
        pytest.skip("this CPU has no AVX2")
    results = {name: _wide(run_kernel) for name, run_kernel in run_kernels(_kernels(target, lanes)).items()}
    plenty = np.arange(4 * lanes, dtype=np.float32).reshape(4, lanes)
    twice = plenty[:2].T.ravel()[:-3]
    expected = {
        "widened": _wide(NARROW),
        "rounded": _wide(NARROW),
        "narrow": _wide(NARROW),
        "as_stored": _wide(NARROW),
        "partly": _partial(NARROW),
        "partly_rounded": _partial(NUMBERS),
        "repeated": np.full(SIZE, NARROW[3], np.float32),
        "doubled": np.full(SIZE, 2 + 2.0**-9, np.float32),
        "interleaved": np.concatenate([plenty.T.ravel(), twice]),
    }
    results["interleaved"] = results["interleaved"][: len(expected["interleaved"])]
    for name, each in expected.items():
        np.testing.assert_array_equal(results[name], each, err_msg=name)
