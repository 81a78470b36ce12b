"""Tensors of open size that functions take and give become tensors, also where nothing imports them any more."""

from __future__ import annotations

from sartor.codegen.mlir.before_lowering.open_arguments import imported_types, take_out_views
from sartor.codegen.mlir.iree_compiler import ir

_VIEW = "!hal.buffer_view"
_TAKEN = f"util.func private @layer(%x: {_VIEW}, %size: index) -> {_VIEW}"
_IMPORTED = f"""{_TAKEN} {{
  %tensor = hal.tensor.import %x : {_VIEW} -> tensor<?x4xf32>{{%size}}
  %view = hal.tensor.export %tensor : tensor<?x4xf32>{{%size}} -> {_VIEW}
  util.return %view : {_VIEW}
}}"""
_GIVEN = f"{_TAKEN} {{ util.return %x : {_VIEW} }}"
_TURNED = f"""util.func private @layer(%x: {_VIEW}, %size: index) -> {_VIEW} {{
  %tensor = hal.tensor.import %x : {_VIEW} -> tensor<?x4xf32>{{%size}}
  %y = math.tanh %tensor : tensor<?x4xf32>
  %view = hal.tensor.export %y : tensor<?x4xf32>{{%size}} -> {_VIEW}
  util.return %view : {_VIEW}
}}"""


def _tensors(text: str, before: str) -> str:
    """A module whose views are tensors, of the types that they had before it was lowered."""
    with ir.Context() as context:
        types = imported_types(before)
        module = ir.Module.parse(text, context)
        take_out_views(module, types)
        assert module.operation.verify()
        return str(module)


def test_views_become_tensors() -> None:
    found = _tensors(_TURNED, _TURNED)
    assert _VIEW not in found
    assert "@layer(%arg0: tensor<?x4xf32>" in found


def test_what_a_layer_gives_as_it_takes_it_has_the_type_that_it_was_imported_with() -> None:
    found = _tensors(_GIVEN, _IMPORTED)
    assert _VIEW not in found
    assert "util.return %arg0 : tensor<?x4xf32>" in found
