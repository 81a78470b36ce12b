"""IREE's implicit product with tiles of ours: what the layer computes, and what IREE makes of the tiles."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.machines.cuda import ARCHITECTURES
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, Variant, choices_of, variant_of, variants_of
from sartor.codegen.kernels.cuda.iree_tiles import thread_tiles
from sartor.codegen.mlir.iree_compiler import ir, shared_context
from sartor.codegen.mlir.operations import nested
from sartor.codegen.routines import LOW_PRECISION, routines_for
from sartor.codegen.routines.cuda import iree_implicit
from sartor.codegen.routines.cuda.iree_implicit import IreeImplicit
from sartor.codegen.routines.iree.stock import Stock
from tests.codegen.routines.harness import Found, Subject, compiled, layers, load, relative_errors
from tests.codegen.routines.layer_cases import Cases
from tools.cuda.assembler.ptx import assemble, assembler, instructions, ptx_of

HOST, GPU = Target.create("cpu"), Target.create("cuda", "sm_80")


@pytest.fixture(scope="module")
def found() -> Found:
    cases = Cases()
    cases.convolution("padded", (1, 16, 14, 14), 128, residual=True)
    cases.convolution("strided", (2, 32, 16, 16), 64, stride=2)
    cases.convolution("pointwise", (1, 64, 7, 7), 256, (1, 1))
    cases.convolution("pixels", (1, 64, 12, 8), 128, (1, 1), residual=True)
    cases.product("product", (64, 48), (48, 128), gelu=True)
    cases.product("attention", (2, 32, 16), (2, 16, 64), weight=False, bias=False)
    weight = cases.builder.weight(64, 48)
    mixed = cases.builder.op("MatMul", "mixed", weight, cases.source("mixed.x", (48, 128)))
    cases.finish("mixed", mixed, (64, 128))
    cases.biased("biased", (1, 64, 8, 8), 64)
    cases.convolution("grouped", (1, 32, 7, 7), 64, groups=2)
    cases.convolution("thin", (1, 3, 8, 8), 64)
    return {layer.name: (layer, weights) for layer, weights in layers({"cases": cases.model})}


def _here(code: Implementation) -> Implementation:
    """The same code without tiles for a GPU, for this machine."""
    with shared_context():
        module = ir.Module.parse(code.body)
        (tiled,) = [op for op in nested(module.operation) if "compilation_info" in op.attributes]
        del tiled.attributes["compilation_info"]
        body = str(module.body.operations[0].operation.get_asm(use_local_scope=True))

    def moved(schemas: tuple[Schema, ...]) -> tuple[Schema, ...]:
        return tuple(replace(schema, device="cpu") for schema in schemas)

    return replace(code, body=body, inputs=moved(code.inputs), outputs=moved(code.outputs))


# What rounding the operands and the result to the type costs; sums are in f32.
ERRORS = {None: 1e-5, "f16": 2e-3, "bf16": 1.5e-2}


def _accepted(layer: Layer, target: Target, storage: str | None = None) -> list[Variant]:
    answers = variants_of(IreeImplicit(storage=storage), layer.task, target)
    found = [answer for answer in answers if isinstance(answer, Variant)]
    assert found, answers
    return found


@pytest.mark.parametrize("storage", ERRORS)
@pytest.mark.parametrize(
    "name", ["padded", "strided", "pointwise", "pixels", "product", "attention", "mixed", "biased"]
)
def test_the_region_computes_the_layer(name: str, storage: str | None, found: Found) -> None:
    layer, weights = found[name]
    first = _accepted(layer, GPU, storage)[0].implementation
    assert {each.dtype for each in (*first.inputs, first.output)} == {storage or "f32"}
    stock = variant_of(Stock(), layer.task, {}, HOST)
    assert isinstance(stock, Variant)
    subject = Subject(layer, weights, {"stock": stock.implementation, "region": _here(first)})
    error = relative_errors(load({name: subject}, HOST), subject)["region"]
    # Rounded values differ, or nothing was rounded.
    assert (1e-5 if storage else 0) <= error < ERRORS[storage]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tiles_go_through_shared_memory_to_sums_in_registers(architecture: str, found: Found) -> None:
    layer, weights = found["padded"]
    target = Target.create("cuda", architecture)
    codes = {f"v{index}": each.implementation for index, each in enumerate(_accepted(layer, target))}
    texts = ptx_of(compiled({"s": Subject(layer, weights, codes)}, target))
    kernels = {text for text in texts if "fma.rn.f32" in text}
    assert len(codes) > 1
    assert len(kernels) == len(codes) or sum(text.count(".entry ") for text in kernels) >= len(codes)
    for text in kernels:
        counted = instructions(text, "ld.shared", "bar.sync", "fma.rn.f32")
        # At least as many products as a thread has sums, of one step of the reduction.
        assert counted["fma.rn.f32"] >= 7 * 4 * 4
        assert min(counted.values()) > 0
        if assembler() is not None:
            assert all(each.spilled == 0 and each.fits for each in assemble(text, architecture))


@pytest.mark.parametrize("storage", ["f16", "bf16"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tensor_cores_multiply_narrower_types(architecture: str, storage: str, found: Found) -> None:
    """Each layer is one kernel, or two if it is padded, whose sums stay in registers."""
    target = Target.create("cuda", architecture)
    subjects = {
        name: Subject(*found[name], {"first": _accepted(found[name][0], target, storage)[0].implementation})
        for name in ("padded", "pixels", "attention")
    }
    kernels = [text for text in ptx_of(compiled(subjects, target)) if "mma.sync" in text]
    entries = re.findall(r"\.entry (\w+)\(", "".join(kernels))
    by_layer = {name: sum(f"s_{name}_" in entry for entry in entries) for name in subjects}
    assert by_layer == {"padded": 2, "pixels": 1, "attention": 1}
    for text in kernels:
        counted = instructions(text, f"mma.sync.aligned.m16n8k16.row.col.f32.{storage}", "ld.shared", "st.shared")
        assert min(counted.values()) > 0
        if assembler() is not None:
            assert all(each.spilled == each.stack == 0 and each.fits for each in assemble(text, architecture))


def test_threads_have_enough_sums_to_be_given_registers(found: Found) -> None:
    """With few sums, the assembler prefers more workgroups to registers, and some are spilled."""
    for target in (Target.create("cuda", architecture) for architecture in ARCHITECTURES):
        for name in ("padded", "pointwise", "product"):
            threads = [dict(each.parameters)["thread"] for each in _accepted(found[name][0], target)]
            assert all(isinstance(thread, tuple) and math.prod(thread) >= 40 for thread in threads)


@pytest.mark.parametrize("result", [(12, 8, 128), (2, 12, 8, 128), (64, 8, 64), (3, 1, 2048)])
def test_tiles_that_have_several_batches_have_a_matrix_for_each(result: tuple[int, ...]) -> None:
    """Twelve batches of 8x64 by 64x128 in one workgroup would need 102 KiB for a step of 16."""
    found = [*thread_tiles(result, 2, ARCHITECTURES["sm_80"])]
    assert found or result[-2] == 1
    for each in found:
        *batches, rows, columns = each.workgroup
        assert math.prod(batches) * (rows + columns) * each.depth * 4 <= 48 << 10
        assert all(whole % part == 0 for whole, part in zip(result[-3:], each.workgroup, strict=True))


def test_narrower_types_are_offered_where_they_are_allowed() -> None:
    offered = {
        dtype for dtype, routines in LOW_PRECISION.items() if "iree_implicit" in {routine.name for routine in routines}
    }
    assert offered == {"f16", "bf16"}
    assert "iree_implicit" in {routine.name for routine in routines_for(())}


@pytest.mark.parametrize("storage", ["f16", "bf16"])
def test_an_activation_that_is_multiplied_and_added_is_not_narrowed(storage: str) -> None:
    cases = Cases()
    name, image = "gated", (1, 64, 8, 8)
    source = cases.source("image", image)
    filters = cases.builder.weight(64, 64, 1, 1)
    value = cases.builder.op("Conv", name, source, filters)
    cases.finish(name, cases.builder.op("Mul", f"{name}.by", value, source), image)
    ((layer, _),) = layers({"cases": cases.model})
    answers = variants_of(IreeImplicit(storage=storage), layer.task, GPU)
    assert {isinstance(answer, Rejected) and answer.reason for answer in answers} == {"an operand has other uses"}


@pytest.mark.parametrize("storage", ERRORS)
@pytest.mark.parametrize("extents", [((2, 0, 128), 32), ((1, 14, 14, 0), 32), ((2, 32, 128), 0)])
def test_what_has_no_elements_has_no_tiles(
    extents: tuple[tuple[int, ...], int], storage: str | None, found: Found, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iree_implicit, "_extents", lambda task, by_product: extents)
    answer = choices_of(IreeImplicit(storage=storage), found["attention"][0].task, GPU)
    assert answer == Rejected("nothing is multiplied")


@pytest.mark.parametrize(("name", "reason"), [("grouped", "neither a convolution"), ("thin", "no multiple of 16")])
@pytest.mark.parametrize("storage", ERRORS)
def test_what_it_does_not_support_is_refused(name: str, reason: str, storage: str | None, found: Found) -> None:
    layer, _ = found[name]
    answers = variants_of(IreeImplicit(storage=storage), layer.task, GPU)
    assert [isinstance(answer, Rejected) and reason in answer.reason for answer in answers] == [True]
