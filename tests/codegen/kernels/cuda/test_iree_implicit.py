"""IREE's implicit product with tiles of ours: what the layer computes, and what IREE makes of the tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.machines.cuda import ARCHITECTURES
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, Variant, variant_of, variants_of
from sartor.codegen.mlir.iree_compiler import ir, shared_context
from sartor.codegen.mlir.operations import nested
from sartor.codegen.routines.cuda.iree_implicit import IreeImplicit
from sartor.codegen.routines.iree.stock import Stock
from sartor.runtime.driver.signature import Array
from tests.codegen.routines.harness import Subject, compiled, layers, load, relative_errors
from tests.codegen.routines.layer_cases import Cases
from tools.cuda.ptx import assemble, assembler, instructions, ptx_of

HOST, GPU = Target.create("cpu"), Target.create("cuda", "sm_80")
Found = Mapping[str, tuple[Layer, Mapping[str, Array]]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    cases = Cases()
    cases.convolution("padded", (1, 16, 14, 14), 128, residual=True)
    cases.convolution("strided", (2, 32, 8, 8), 64, stride=2)
    cases.convolution("pointwise", (1, 64, 7, 7), 128, (1, 1))
    cases.product("product", (64, 48), (48, 128), gelu=True)
    cases.product("attention", (2, 32, 16), (2, 16, 64), weight=False, bias=False)
    cases.convolution("grouped", (1, 32, 7, 7), 64, groups=2)
    cases.convolution("thin", (1, 3, 8, 8), 64)
    folder = tmp_path_factory.mktemp("cases")
    return {layer.name: (layer, weights) for layer, weights in layers(folder, {"cases": cases.model})}


def _here(code: Implementation) -> Implementation:
    """The same code without tiles for a GPU, for this machine."""
    with shared_context():
        module = ir.Module.parse(code.body)
        (tiled,) = [op for op in nested(module.operation) if "compilation_info" in op.attributes]
        del tiled.attributes["compilation_info"]
        body = str(module.body.operations[0].operation.get_asm(use_local_scope=True))

    def moved(schemas: tuple[Schema, ...]) -> tuple[Schema, ...]:
        return tuple(replace(each, device="cpu") for each in schemas)

    return replace(code, body=body, inputs=moved(code.inputs), outputs=moved(code.outputs))


@pytest.mark.parametrize("name", ["padded", "strided", "pointwise", "product", "attention"])
def test_the_region_computes_the_layer(name: str, found: Found) -> None:
    layer, weights = found[name]
    variants = variants_of(IreeImplicit(), layer.task, GPU)
    accepted = [each for each in variants if isinstance(each, Variant)]
    assert accepted, variants
    stock = variant_of(Stock(), layer.task, {}, HOST)
    assert isinstance(stock, Variant)
    subject = Subject(layer, weights, {"stock": stock.implementation, "region": _here(accepted[0].implementation)})
    assert relative_errors(load({name: subject}, HOST), subject)["region"] < 1e-5


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tiles_go_through_shared_memory_to_sums_in_registers(architecture: str, found: Found) -> None:
    layer, weights = found["padded"]
    target = Target.create("cuda", architecture)
    variants = [each for each in variants_of(IreeImplicit(), layer.task, target) if isinstance(each, Variant)]
    codes = {f"v{index}": each.implementation for index, each in enumerate(variants)}
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


@pytest.mark.parametrize(("name", "reason"), [("grouped", "neither a convolution"), ("thin", "no multiple of 16")])
def test_what_it_does_not_support_is_refused(name: str, reason: str, found: Found) -> None:
    layer, _ = found[name]
    answers = variants_of(IreeImplicit(), layer.task, GPU)
    assert [isinstance(each, Rejected) and reason in each.reason for each in answers] == [True]
