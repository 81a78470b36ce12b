"""Kernels as executables: their workgroups and names, and what is said of those that are wrong or have too many."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

from sartor.codegen.ir.layer import Task, TensorType
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Rejected, Variant, variant_of, variants_of
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.executable import Kernel
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.emit.workgroup_counts import check_groups
from sartor.codegen.kernels.tensor_cores.tiling import BlockTiling
from sartor.codegen.linking.bench_module import bench_module
from sartor.codegen.linking.pieces import Piece
from sartor.codegen.mlir.dispatches import executable_target, lower
from sartor.codegen.mlir.iree_compiler import inlined, ir, translate
from sartor.codegen.routines import routines_for
from sartor.codegen.routines.cuda.implicit import Implicit
from sartor.errors import CompileError
from tests.codegen.kernels.small_kernels import HOST, LANES, SmallKernel, floats, number, run_kernels
from tests.codegen.routines.harness import layers
from tests.codegen.routines.layer_cases import Cases

Group = tuple[Index, Index, Index]


def _positions(groups: Group) -> SmallKernel:
    """Every workgroup writes its position, one vector for each dimension."""
    sizes = tuple(each for each in groups if isinstance(each, int))

    def write(asm: Assembler, memories: Sequence[ir.Value], group: Group) -> None:
        linear = asm.add(group[0], asm.mul(group[1], sizes[0]), asm.mul(group[2], sizes[0] * sizes[1]))
        for axis, index in enumerate(group):
            place = asm.add(asm.mul(linear, 3 * LANES), axis * LANES)
            asm.store(number(asm, index), memories[-1], place, LANES)

    return SmallKernel(write, [floats(0)], int(np.prod(sizes)) * 3 * LANES, (sizes[0], sizes[1], sizes[2]))


def _broken(asm: Assembler, memories: Sequence[ir.Value], group: Group) -> None:
    ir.Operation.create("arith.addf", results=[ir.F32Type.get()], operands=[asm.value(0), asm.value(1)])


def test_every_workgroup_knows_its_position() -> None:
    """The same symbol inside each kernel does not clash."""
    kernels = {"line": _positions((5, 1, 1)), "plane": _positions((1, 3, 2)), "space": _positions((2, 3, 4))}
    results = run_kernels(kernels)
    for name, kernel in kernels.items():
        x, y, z = kernel.groups
        expected = [(i, j, k) for k in range(z) for j in range(y) for i in range(x)]
        found = results[name].reshape(-1, 3, LANES)
        assert (found == found[..., :1]).all()
        assert found[..., 0].tolist() == [list(map(float, each)) for each in expected]


@pytest.mark.parametrize("tied", [None, 0])
def test_commands_that_call_kernels_are_recorded_once(tied: int | None) -> None:
    """What records them is called when the module is loaded, as it takes no buffer of a call."""
    kernel = SmallKernel(_doubled, [floats(1, 2, 3, 4), np.arange(12, dtype=np.float32)], 4, tied=tied)
    (code,) = lower({"once": kernel.implementation}, HOST).values()
    signature = list(kernel.kernel.reads), list(kernel.kernel.results)
    text = bench_module(HOST, {"once": Piece("once", kernel.implementation, code)}, {"once": signature})
    recorders = re.findall(
        r"func private @\S+_memoize_apply\((.*?)\)", translate(inlined(text), HOST.flags, to="hal", start="flow")
    )
    assert recorders == ["", ""]


def test_a_dimension_of_one_workgroup_is_a_constant() -> None:
    seen: list[Group] = []

    def write(asm: Assembler, memories: Sequence[ir.Value], group: Group) -> None:
        seen.append(group)

    small = SmallKernel(write, [floats(0)], 1, (1, 3, 1))
    small.kernel.executable(HOST, write)
    assert [isinstance(each, int) for each in seen[0]] == [True, False, True]


def test_a_kernel_that_is_not_valid_is_no_candidate() -> None:
    broken = SmallKernel(_broken, [floats(0)], 1)
    with pytest.raises(ValueError, match="operand #0 must be floating-point"):
        broken.kernel.executable(HOST, _broken)
    with pytest.raises(CompileError, match=r"a kernel cannot be written: .*operand #0"):
        lower({"broken": broken.implementation}, HOST)


def _doubled(asm: Assembler, memories: Sequence[ir.Value], group: Group) -> None:
    """The second input, twice, and the first one added."""
    value = asm.load(memories[1], asm.mul(group[0], LANES), LANES)
    total = asm.sum_of(asm.sum_of(value, value), asm.load(memories[0], 0, LANES))
    asm.store(total, memories[-1], asm.mul(group[0], LANES), LANES)


def test_a_result_may_be_written_over_an_input() -> None:
    left, right = floats(1, 2, 3, 4), np.arange(12, dtype=np.float32)
    results = run_kernels({"over": SmallKernel(_doubled, [left, right], 12, (3, 1, 1), tied=1)})
    assert results["over"].tolist() == (2 * np.arange(12) + np.tile([1, 2, 3, 4], 3)).tolist()
    assert right.tolist() == list(range(12)), "what others still have is copied first"


@pytest.mark.parametrize(("tied", "bindings"), [(None, [0, 1, 2, 3]), (0, [0, 1, 0, 2]), (1, [0, 1, 1, 2])])
def test_a_tied_result_has_no_binding_of_its_own(tied: int | None, bindings: list[int]) -> None:
    one, other = TensorType((4,), "f32"), TensorType((9,), "bf16")
    kernel = Kernel("small", (one, one), (one, other), (1, 1, 1), LANES, tied)
    text = kernel.executable(HOST, lambda asm, memories, group: None)
    assert [int(each) for each in re.findall(r"binding\((\d)\)", text)] == bindings
    (layout,) = set(re.findall(r"#hal.pipeline.layout<bindings = \[(.*?)\], flags = Indirect>", text))
    read_only = ["ReadOnly" in part for part in layout.split(", #")]
    assert read_only == [index != tied and index < 2 for index in range(max(bindings) + 1)]
    place = "tensor<4xf32>" if tied is None else f"%a{tied}"
    assert kernel.dispatch(["%a0", "%a1"]).endswith(f" : (tensor<4xf32>, tensor<4xf32>) -> ({place}, tensor<9xbf16>)")


@pytest.mark.parametrize(("tied", "bindings"), [(None, [0, 1, 3, 4, 2]), (1, [0, 1, 1, 3, 2])])
def test_flags_are_a_last_buffer_of_zeros(tied: int | None, bindings: list[int]) -> None:
    one, other, flags = TensorType((4,), "f32"), TensorType((9,), "bf16"), TensorType((16,), "i32")
    kernel = Kernel("small", (one, one), (one, other), (1, 1, 1), LANES, tied, flags=flags)
    text = kernel.executable(HOST, lambda asm, memories, group: None)
    assert [int(each) for each in re.findall(r"binding\((\d)\)", text)] == bindings
    (layout,) = set(re.findall(r"#hal.pipeline.layout<bindings = \[(.*?)\], flags = Indirect>", text))
    read_only = ["ReadOnly" in part for part in layout.split(", #")]
    assert read_only == [index != tied and index < 2 for index in range(max(bindings) + 1)]
    zero, filled, dispatch = kernel.dispatch(["%a0", "%a1"]).splitlines()
    assert (zero, filled) == ("%zero = arith.constant 0 : i32", "  %flags = flow.tensor.splat %zero : tensor<16xi32>")
    place = "tensor<4xf32>" if tied is None else f"%a{tied}"
    assert dispatch.endswith(f" : (tensor<4xf32>, tensor<4xf32>, tensor<16xi32>) -> ({place}, tensor<9xbf16>, %flags)")


@pytest.mark.parametrize(
    ("architecture", "words"),
    [
        ("x86-64-v3", ("embedded-elf-x86_64", "native_vector_size = 32")),
        ("aarch64:neoverse-n1", ("embedded-elf-arm_64", "native_vector_size = 16", 'cpu = "neoverse-n1"')),
    ],
)
def test_executables_are_for_the_targets_cpu(architecture: str, words: tuple[str, ...]) -> None:
    attribute = executable_target(Target.create("cpu", architecture))
    assert all(word in attribute for word in words)


CPU, CUDA = Target.create("cpu"), Target.create("cuda", "sm_90")
NVIDIA, AMD, MESA = (Target.create("vulkan", name) for name in ("ampere", "rdna3", "llvmpipe"))


@pytest.mark.parametrize(
    ("target", "within", "beyond"),
    [
        (CPU, (1 << 20, 1 << 20, 65535), (1, 1, 65536)),
        (CUDA, (1 << 20, 65535, 65535), (1, 65536, 1)),
        (NVIDIA, (1 << 20, 65535, 65535), (1, 1, 65536)),
        (AMD, (1 << 20, 65535, 65535), (1, 65536, 1)),
        (MESA, (65535, 65535, 65535), (65536, 1, 1)),
    ],
    ids=str,
)
def test_each_dimension_has_its_limit(
    target: Target, within: tuple[int, int, int], beyond: tuple[int, int, int]
) -> None:
    check_groups(within, target)
    with pytest.raises(ValueError, match="65536 workgroups"):
        check_groups(beyond, target)


def test_kernels_refuse_batches_of_which_they_would_not_compute_the_last() -> None:
    cases = Cases()
    for batches in (65535, 65536):
        cases.product(f"of{batches}", (batches, 2, 4), (batches, 4, 8), weight=False, bias=False)
    tasks = {layer.name: layer.task for layer, _ in layers({"batches": cases.model})}
    assert any(isinstance(product, Variant) for product in _products(tasks["of65535"]))
    refused = _products(tasks["of65536"])
    assert all(isinstance(each, Rejected) and "65536 workgroups" in each.reason for each in refused)


def test_the_kernel_of_a_sum_s_parts_is_refused_too() -> None:
    """Parts of each batch are counted along one dimension."""
    cases = Cases()
    cases.product("split", (32768, 16, 128), (32768, 128, 16), weight=False, bias=False)
    ((layer, _),) = layers({"split": cases.model})
    for split, refused in ((1, False), (2, True)):
        tiling = BlockTiling(32, 32, 64, 2, 2, 3, split)
        found = variant_of(Implicit(), layer.task, tiling.parameters(), CUDA)
        assert isinstance(found, Rejected) == refused
    assert isinstance(found, Rejected)
    assert "65536 workgroups" in found.reason


def test_large_images_have_tiles_of_few_rows() -> None:
    cases = Cases()
    cases.convolution("large", (1, 16, 2160, 3840), 16)
    ((layer, _),) = layers({"large": cases.model})
    assert isinstance(variant_of(Implicit(), layer.task, BlockTiling(64, 32, 64, 2, 2, 3).parameters(), CUDA), Variant)


def _products(task: Task) -> list[Variant | Rejected]:
    (routine,) = (each for each in routines_for(()) if each.name == "product")
    return [*variants_of(routine, task, CPU)]
