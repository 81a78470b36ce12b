"""What follows a grouped convolution is computed on a part of its channels only where it is the same for all."""

from __future__ import annotations

import pytest

from sartor.codegen.ir.layer import LayerKind, TensorType
from sartor.codegen.subgraphs.fusion import task_of
from sartor.codegen.subgraphs.grouped import narrowed

IMAGE = TensorType((1, 64, 3, 5), "f32")
BODIES = {
    "activation": "%r = arith.maximumf %a, %zero : f32",
    "channel": """%i = linalg.index 1 : index
      %j = arith.index_cast %i : index to i32
      %f = arith.sitofp %j : i32 to f32
      %r = arith.addf %a, %f : f32""",
    "constant image": "%r = arith.addf %a, %b : f32",
}


def _tail(body: str) -> str:
    return f"""util.func public @layer(%x: {IMAGE}) -> {IMAGE} {{
  %zero = arith.constant 0.0 : f32
  %image = arith.constant dense<2.0> : {IMAGE}
  %empty = tensor.empty() : {IMAGE}
  %g = linalg.generic {{indexing_maps = [affine_map<(n, c, h, w) -> (n, c, h, w)>,
      affine_map<(n, c, h, w) -> (n, c, h, w)>, affine_map<(n, c, h, w) -> (n, c, h, w)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}}
      ins(%x, {"%image" if "%b" in body else "%x"} : {IMAGE}, {IMAGE}) outs(%empty : {IMAGE}) {{
  ^bb0(%a: f32, %b: f32, %o: f32):
      {body}
    linalg.yield %r : f32
  }} -> {IMAGE}
  util.return %g : {IMAGE}
}}"""


@pytest.mark.parametrize(("name", "is_same"), [("activation", True), ("channel", False), ("constant image", False)])
def test_a_part_has_what_is_the_same_for_all_channels(name: str, is_same: bool) -> None:
    text = _tail(BODIES[name])
    if "%b" not in BODIES[name]:
        text = text.replace(f"  %image = arith.constant dense<2.0> : {IMAGE}\n", "")
    tail = task_of(LayerKind.TOLERANT, text, (IMAGE,), (), (IMAGE,))
    part = narrowed(tail, 16)
    assert (part is not None) == is_same
    if part is not None:
        assert part.inputs == (TensorType((1, 16, 3, 5), "f32"),)
