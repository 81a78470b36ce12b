"""Tensors of open size that functions take and give: what no tensor can be made of is refused."""

from __future__ import annotations

import pytest

from sartor.codegen.mlir.before_lowering.open_arguments import take_out_views
from sartor.codegen.mlir.iree_compiler import ir
from sartor.errors import CompileError

_VIEW = "!hal.buffer_view"
_GIVEN = f"util.func private @layer(%x: {_VIEW}) -> {_VIEW} {{ util.return %x : {_VIEW} }}"
_TURNED = f"""util.func private @layer(%x: {_VIEW}, %size: index) -> {_VIEW} {{
  %tensor = hal.tensor.import %x : {_VIEW} -> tensor<?x4xf32>{{%size}}
  %y = math.tanh %tensor : tensor<?x4xf32>
  %view = hal.tensor.export %y : tensor<?x4xf32>{{%size}} -> {_VIEW}
  util.return %view : {_VIEW}
}}"""


def test_a_layer_that_gives_what_it_takes_is_refused() -> None:
    module = ir.Module.parse(_GIVEN, ir.Context())
    with pytest.raises(CompileError, match="a layer of any size gives what it takes"):
        take_out_views(module)


def test_views_become_tensors() -> None:
    module = ir.Module.parse(_TURNED, ir.Context())
    take_out_views(module)
    assert module.operation.verify()
    assert _VIEW not in str(module)
    assert "@layer(%arg0: tensor<?x4xf32>" in str(module)
