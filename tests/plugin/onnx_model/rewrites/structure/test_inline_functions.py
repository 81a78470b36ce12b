"""Functions of a model's own that ONNX's inliner refuses are named in plain words."""

from __future__ import annotations

import onnx.inliner
import pytest
from onnx import helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.rewrites.structure.inline_functions import inline_functions
from tests.plugin.onnx_model.builders import FLOAT, model, node


def test_message_of_the_inliner_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("/onnx/inliner/inliner.cc:123: ProcessGraph: Assertion `false` failed")

    monkeypatch.setattr(onnx.inliner, "inline_local_functions", refuse)
    function = helper.make_function(
        "own", "F", ["a"], ["b"], [node("Neg", ["a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    built = model([helper.make_node("F", ["x"], ["y"], "call", domain="own")], [("x", (2,), FLOAT)], ["y"])
    built.functions.append(function)
    built.opset_import.append(helper.make_opsetid("own", 1))
    with pytest.raises(
        UnsupportedModelError, match=r"the function of node 'call' cannot be inlined .*export it"
    ) as found:
        inline_functions(built)
    assert "inliner.cc" not in str(found.value)
