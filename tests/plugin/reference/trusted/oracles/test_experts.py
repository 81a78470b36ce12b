"""The definition of mixtures of experts in few bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, numpy_helper

from sartor.reference.trusted.oracles.call import Call
from sartor.reference.trusted.oracles.experts import quantised_experts
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.reference import OnnxRuntimeReference
from tests.plugin.expert_models import DEPTH, EXPERTS, SWIGLU, feeds, mixture, of_bits
from tests.plugin.onnx_model.builders import Array, relative_error, run, weights


def _defined(built: ModelProto, given: dict[str, Array]) -> Array:
    node: NodeProto = built.graph.node[0]
    values = given | {tensor.name: numpy_helper.to_array(tensor) for tensor in built.graph.initializer}
    (result,) = quantised_experts(Call(node, [values.get(name) for name in node.input], 1))
    return result


@pytest.mark.parametrize(
    "attributes",
    [
        {"k": 2},
        {"k": 5, "activation_alpha": 1.7, "activation_beta": 1.0, "swiglu_limit": 0.4},
        {"k": 1, "swiglu_fusion": 2},
    ],
)
@pytest.mark.parametrize(("bits", "block"), [(4, 16), (4, 0), (8, 0)])
def test_it_gives_what_the_kernel_gives_that_rounds_nothing(bits: int, block: int, attributes: dict[str, Any]) -> None:
    built, given = of_bits(bits, block, (7, DEPTH), **attributes), feeds(7, DEPTH)
    assert relative_error(_defined(built, given), run(built, given)["y"]) < 1e-5


@pytest.mark.parametrize("normalises", [0, 1])
def test_weights_of_the_model(normalises: int) -> None:
    own = np.array([[9, 9, 9, 0.5, 0.2], [9, 9, 9, -0.5, 0.2], [9, 9, 9, 0, 0]], np.float32)
    given = {"x": weights(3, DEPTH), "routes": np.tile(np.arange(EXPERTS, dtype=np.float32), (3, 1))}
    given["routes"][0] = 1
    built = of_bits(4, 16, (3, DEPTH), {"own": own}, k=2, normalize_routing_weights=normalises)
    assert relative_error(_defined(built, given), run(built, given)["y"]) < 1e-5


def test_references_of_eight_bits_in_blocks_are_products_of_floats() -> None:
    """ONNX Runtime's kernel rounds tokens, and is not asked; its kernel of floats has the same weights here."""
    built, given = of_bits(8, 16, (7, DEPTH), k=2), feeds(7, DEPTH)
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in built.graph.initializer}
    floats = {name: held[name] for name in ("b1", "b2")}
    for part in "12":
        points, scales = (np.repeat(held[name + part].astype(np.float32), 16, axis=-1) for name in "zs")
        floats[f"w{part}"] = (held[f"w{part}"] - points) * scales
    options = {"k": 2, "normalize_routing_weights": 1, **SWIGLU}
    by_floats = mixture("MoE", floats, ["w1", "b1", "w2", "b2"], (7, DEPTH), **options)
    reference = ReferenceModel(built.SerializeToString())
    (found,) = reference(given)
    assert [node.op_type for node in reference.own] == ["QMoE"]
    assert relative_error(found, run(by_floats, given)["y"]) < 1e-5
    (by_kernel,) = OnnxRuntimeReference(built.SerializeToString())(given)
    assert relative_error(found, by_kernel) > 1e-4, "the kernel rounds nothing any more"
