"""Kernels as NVIDIA's assembler sees them: registers, spills, and the instructions that are expected."""

from __future__ import annotations

import itertools

import pytest

from sartor.codegen.ir.machines.cuda import ARCHITECTURES
from sartor.codegen.ir.machines.occupancy import Footprint
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Variant, variant_of, variants_of
from sartor.codegen.kernels.tensor_cores.tiling import BlockTiling
from sartor.codegen.routines.cuda.implicit import Implicit
from sartor.codegen.routines.cuda.thread_window import ThreadWindows
from sartor.codegen.routines.cuda.warp_rows import WarpRow
from tests.codegen.routines.harness import Subject, compiled, layers
from tests.codegen.routines.layer_cases import Cases
from tools.cuda.assembler.ptx import Assembled, assemble, assembler, instructions, ptx_of

TILING = BlockTiling(32, 64, 64, 2, 2, 3)
SPLIT = BlockTiling(32, 64, 64, 2, 2, 3, split=2)


@pytest.fixture(scope="module")
def subject() -> Subject:
    cases = Cases()
    cases.convolution("convolution", (1, 32, 7, 7), 64, residual=True)
    ((layer, weights),) = layers({"cases": cases.model})
    return Subject(layer, weights, {})


def ptx(
    subject: Subject, target: Target, storage: str | None, tiling: BlockTiling, arithmetic: str | None = None
) -> list[str]:
    """The PTX of a variant's kernels."""
    found = variant_of(Implicit(storage=storage, arithmetic=arithmetic), subject.task, tiling.parameters(), target)
    assert isinstance(found, Variant), found
    return ptx_of(compiled({"s": Subject(subject.layer, subject.weights, {"v": found.implementation})}, target))


def checked(text: str, architecture: str) -> Assembled:
    """A kernel that is assembled, if the assembler is here."""
    if assembler() is None:
        pytest.skip("ptxas is not installed: pip install nvidia-cuda-nvcc-cu12")
    (found,) = assemble(text, architecture)
    return found


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_target_gets_the_expected_instructions(architecture: str, subject: Subject) -> None:
    (text,) = ptx(subject, Target.create("cuda", architecture), None, TILING)
    # Two steps of 2 x 4 products of three parts; two rows of units in each of two stages before the loop and in it.
    assert instructions(text, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "ldmatrix.sync", "div", "rem") == {
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32": 2 * 1 * 4 * 3,
        "ldmatrix.sync": 2 * (1 + 2),
        "div": 0,
        "rem": 0,
    }
    assert instructions(text, "cp.async.cg.shared.global")["cp.async.cg.shared.global"] == 3 * (1 + 2)
    assert instructions(text, "cp.async.wait_group", "bar.sync") == {"cp.async.wait_group": 1, "bar.sync": 1}
    assert f".target {architecture}" in text
    found = checked(text, architecture)
    assert (found.stack, found.spilled) == (0, 0)
    assert found.registers <= 128


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tf32_has_one_product_of_three(architecture: str, subject: Subject) -> None:
    (text,) = ptx(subject, Target.create("cuda", architecture), None, TILING, "tf32")
    name = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
    assert instructions(text, name) == {name: 2 * 1 * 4}
    assert checked(text, architecture).spilled == 0


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("storage", ["f16", "bf16"])
def test_narrower_types_are_multiplied_sixteen_deep(storage: str, architecture: str, subject: Subject) -> None:
    (text,) = ptx(subject, Target.create("cuda", architecture), storage, TILING)
    name = f"mma.sync.aligned.m16n8k16.row.col.f32.{storage}.{storage}.f32"
    assert instructions(text, name) == {name: 2 * 1 * 4}
    assert checked(text, architecture).spilled == 0


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_bytes_are_multiplied_thirty_two_deep(architecture: str, subject: Subject) -> None:
    (text,) = ptx(subject, Target.create("cuda", architecture), "i8", TILING)
    name = "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32"
    assert instructions(text, name, "ldmatrix.sync") == {name: 2 * 1 * 4, "ldmatrix.sync": 2 * (1 + 2)}
    # Scales, sums, biases and residuals are read two at a time; only ranges are single numbers.
    assert instructions(text, "ld.global.b8", "ld.global.nc.b8") == {"ld.global.b8": 0, "ld.global.nc.b8": 0}
    # Elsewhere a product that is fused with a sum would be rounded once, and differ from QuantizeLinear's.
    assert instructions(text, "mul.f32") == {"mul.f32": 0}
    assert checked(text, architecture).spilled == 0


@pytest.mark.parametrize(("storage", "turned", "loaded"), [(None, 0, 2 * 4 * 2), ("f16", 2 * 2, 0)])
def test_the_right_activation_is_turned_where_it_is_loaded(storage: str | None, turned: int, loaded: int) -> None:
    cases = Cases()
    cases.product("context", (2, 64, 64), (2, 64, 64), weight=False, bias=False)
    ((layer, weights),) = layers({"cases": cases.model})
    (text,) = ptx(Subject(layer, weights, {}), Target.create("cuda", "sm_80"), storage, TILING)
    assert text.count("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16") == turned
    assert instructions(text, "ld.shared") == {"ld.shared": loaded}
    assert checked(text, "sm_80").spilled == 0


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_split_reduction_has_two_kernels(architecture: str, subject: Subject) -> None:
    (text,) = ptx(subject, Target.create("cuda", architecture), None, SPLIT)
    first, second = text.split(".entry ")[1:]
    parts, added = (first, second) if "mma.sync" in first else (second, first)
    assert instructions(parts, "mma.sync", "ld.global") == {"mma.sync": 24, "ld.global": 0}
    # Two parts, the bias and the residual, each in one access.
    assert instructions(added, "mma.sync", "bar.sync", "ld.global") == {"mma.sync": 0, "bar.sync": 0, "ld.global": 4}
    if assembler() is not None:
        assert [each.spilled for each in assemble(text, architecture)] == [0, 0]


@pytest.mark.parametrize("storage", [None, "f16"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_windows_and_rows_assemble_for_every_target(architecture: str, storage: str | None) -> None:
    """Each is one kernel without shared memory or barriers."""
    cases = Cases()
    cases.convolution("depthwise", (2, 12, 5, 7), 12, groups=12, residual=True)
    cases.pool("maximum", "MaxPool", (1, 8, 9, 9), (1, 8, 5, 5), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    cases.pool("average", "GlobalAveragePool", (2, 8, 6, 6), (2, 8, 1, 1))
    cases.rows("softmax", "Softmax", (3, 5, 37))
    cases.rows("norm", "LayerNormalization", (6, 200), 2)
    target, subjects = Target.create("cuda", architecture), dict[str, Subject]()
    for layer, weights in layers({"cases": cases.model}):
        routine = WarpRow(storage=storage) if layer.name in ("softmax", "norm") else ThreadWindows(storage=storage)
        found = {f"v{place}": variant for place, variant in enumerate(variants_of(routine, layer.task, target))}
        codes = {name: each.implementation for name, each in found.items() if isinstance(each, Variant)}
        assert codes, layer.name
        subjects[layer.name] = Subject(layer, weights, codes)
    texts = ptx_of(compiled(subjects, target))
    assert sum(text.count(".entry ") for text in texts) == sum(len(each.implementations) for each in subjects.values())
    for text in texts:
        assert instructions(text, "bar.sync", "st.shared") == {"bar.sync": 0, "st.shared": 0}
        if assembler() is not None:
            assert all(each.spilled == each.stack == 0 and each.fits for each in assemble(text, architecture))


OCCUPYING = (
    # Few warps with large tiles, many with small ones, deep stages.
    *(BlockTiling(32, 32, 64, 2, 2, 3), BlockTiling(32, 64, 64, 2, 2, 3), BlockTiling(32, 64, 128, 2, 2, 3)),
    *(BlockTiling(64, 64, 64, 4, 2, 3), BlockTiling(64, 64, 64, 2, 2, 3), BlockTiling(64, 128, 64, 2, 2, 3)),
)


@pytest.mark.parametrize("storage", [None, "f16"])
def test_the_registers_of_the_cost_model_are_those_of_the_assembler(storage: str | None) -> None:
    """Within a sixth, so that the model orders tilings by the workgroups that a multiprocessor holds as ptxas does."""
    cases = Cases()
    cases.product("product", (256, 512), (512, 256))
    ((layer, weights),) = layers({"cases": cases.model})
    subject, gpu = Subject(layer, weights, {}), ARCHITECTURES["sm_80"]
    held: list[tuple[int, int]] = []
    for tiling in OCCUPYING:
        (text,) = ptx(subject, Target.create("cuda", "sm_80"), storage, tiling)
        found = checked(text, "sm_80")
        assert found.threads == tiling.threads
        assert abs(found.registers - tiling.registers) <= max(8, found.registers / 6), tiling
        held.append(
            (tiling.resident(gpu), Footprint(found.threads, found.registers, tiling.shared_bytes).resident(gpu))
        )
    assert len({by_model for by_model, _ in held}) > 2
    for one, other in itertools.combinations(held, 2):
        if one[0] > 1.5 * other[0]:
            assert one[1] > other[1]
