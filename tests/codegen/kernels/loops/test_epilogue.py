"""Elementwise regions emitted on vectors compute what numpy computes, and what has no such form is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import erf

import numpy as np
import pytest

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.epilogue import check_region, emit_region
from sartor.codegen.mlir.iree_compiler import ir, shared_context
from sartor.codegen.mlir.operations import nested
from tests.codegen.kernels.small_kernels import LANES, SmallKernel, floats, run_kernels

Array = np.ndarray

X = floats(-30.0, -1.0, -0.25, 0.0, 0.25, 1.0, 2.5, 30.0)
Y = floats(1.5, -1.0, 2.0, -0.5, 0.25, 8.0, -2.5, 0.0)

# Regions of two inputs ``%x`` and ``%y`` that yield ``%r``.
REGIONS: dict[str, tuple[str, Callable[[Array, Array], Array]]] = {
    "exp": ("%r = math.exp %x : f32", lambda x, y: np.exp(x)),
    "erf": ("%r = math.erf %x : f32", lambda x, y: np.vectorize(erf)(x)),
    "tanh": ("%r = math.tanh %x : f32", lambda x, y: np.tanh(x)),
    "log1p": ("%e = math.exp %x : f32\n %r = math.log1p %e : f32", lambda x, y: np.log1p(np.exp(x))),
    "round": ("%r = math.roundeven %x : f32", lambda x, y: np.round(x)),
    "maximum": ("%r = arith.maximumf %x, %y : f32", np.maximum),
    "constant": (
        "%half = arith.constant 0.5 : f32\n %h = arith.mulf %x, %half : f32\n %r = arith.addf %h, %y : f32",
        lambda x, y: 0.5 * x + y,
    ),
    "select": (
        "%c = arith.cmpf olt, %x, %y : f32\n %r = arith.select %c, %x, %y : f32",
        lambda x, y: np.where(x < y, x, y),
    ),
    "constant from outside": ("%r = arith.mulf %x, %outside : f32", lambda x, y: 3 * x),
    "integers": (
        """%i = arith.fptosi %x : f32 to i32
        %two = arith.constant 2 : i32
        %rest = arith.remsi %i, %two : i32
        %zero = arith.constant 0 : i32
        %even = arith.cmpi eq, %rest, %zero : i32
        %f = arith.sitofp %i : i32 to f32
        %r = arith.select %even, %f, %y : f32""",
        lambda x, y: np.where(np.trunc(x) % 2 == 0, np.trunc(x), y),
    ),
    "truth": (
        """%zero = arith.constant 0.0 : f32
        %a = arith.cmpf ogt, %x, %zero : f32
        %b = arith.cmpf ogt, %y, %zero : f32
        %yes = arith.constant true
        %c = arith.andi %a, %b : i1
        %d = arith.xori %c, %yes : i1
        %r = arith.uitofp %d : i1 to f32""",
        lambda x, y: 1.0 - ((x > 0) & (y > 0)),
    ),
    "half precision": (
        "%h = arith.truncf %x : f32 to f16\n %s = arith.addf %h, %h : f16\n %r = arith.extf %s : f16 to f32",
        lambda x, y: 2 * x,
    ),
    "zero from outside": ("%r = arith.addf %y, %nothing : f32", lambda x, y: y),
}
REFUSED = {
    "linalg.index cannot be emitted on vectors": """%i = linalg.index 0 : index
        %j = arith.index_cast %i : index to i32
        %r = arith.sitofp %j : i32 to f32""",
    "tensor.extract cannot be emitted on vectors": """%c = arith.constant 0 : index
        %r = tensor.extract %t[%c] : tensor<8xf32>""",
    "uses a value that is not constant": "%r = arith.mulf %x, %scalar : f32",
}
# Of IREE's polynomials for exp, erf and tanh.
MAX_ERROR = 5e-7


def _generic(region: str) -> tuple[ir.Module, ir.Operation]:
    """A module, which must outlive what is in it, and its one elementwise op."""
    text = f"""#map = affine_map<(d0) -> (d0)>
func.func @layer(%t: tensor<8xf32>, %scalar: f32) -> tensor<8xf32> {{
  %outside = arith.constant 3.0 : f32
  %nothing = arith.constant 0.0 : f32
  %g = linalg.generic {{indexing_maps = [#map, #map, #map], iterator_types = ["parallel"]}}
      ins(%t, %t : tensor<8xf32>, tensor<8xf32>) outs(%t : tensor<8xf32>) {{
  ^bb0(%x: f32, %y: f32, %out: f32):
    {region}
    linalg.yield %r : f32
  }} -> tensor<8xf32>
  return %g : tensor<8xf32>
}}"""
    module = ir.Module.parse(text, shared_context())
    return module, next(op for op in nested(module.operation) if op.name == "linalg.generic")


def _kernel(region: str) -> SmallKernel:
    def write(asm: Assembler, memories: Sequence[ir.Value], _: tuple[Index, Index, Index]) -> None:
        _module, op = _generic(region)
        check_region(op)
        for start in range(0, len(X), LANES):
            inputs = [asm.load(memory, start, LANES) for memory in memories[:2]]
            asm.store(emit_region(asm, op, inputs), memories[2], start, LANES)

    return SmallKernel(write, [X, Y], len(X))


@pytest.fixture(scope="module")
def results() -> dict[str, Array]:
    names = {name: name.replace(" ", "_") for name in REGIONS}
    found = run_kernels({names[name]: _kernel(region) for name, (region, _) in REGIONS.items()})
    return {name: found[names[name]] for name in REGIONS}


@pytest.mark.parametrize("name", REGIONS)
def test_regions_are_right_on_vectors(name: str, results: dict[str, Array]) -> None:
    expected = REGIONS[name][1](X.astype(np.float64), Y.astype(np.float64))
    np.testing.assert_allclose(results[name], expected, rtol=MAX_ERROR, atol=MAX_ERROR)


@pytest.mark.parametrize("reason", REFUSED)
def test_what_has_no_form_on_vectors_is_refused(reason: str) -> None:
    _module, op = _generic(REFUSED[reason])
    with pytest.raises(ValueError, match=reason):
        check_region(op)
