"""Moves the sizes of channels from what a product reads to its weights, by powers of two, which changes no result.

``x @ w = (x * 2^-k) @ (2^k * w)`` with an exponent k for each channel of x (Xiao et al., SmoothQuant, 2023, section 4,
with powers of two). In f32 every product and every sum keeps its bits; in 8 bits one range then suits all channels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from sartor.codegen.digest import digest
from sartor.errors import UsageError
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes
from sartor.onnx_model.rewrites.structure.drop_unused import drop_unused

Exponents = Mapping[str, Sequence[int]]
"""For tensors that products read, the exponent of each channel, by which the tensor is divided."""

MOST_EXPONENT = 16
"""The largest exponent, which keeps normal numbers of usual sizes normal."""


def products_by_tensor(model: ModelProto) -> dict[str, list[NodeProto]]:
    """Products of f32 by constant matrices, by the computed tensor whose last axis they multiply."""
    editor = GraphEditor(model.graph)
    products: dict[str, list[NodeProto]] = defaultdict(list)
    for node in model.graph.node:
        if node.op_type not in ("MatMul", "Gemm") or attributes(node).get("transA", 0):
            continue
        tensor, weight = node.input[0], node.input[1]
        if editor.producer(tensor) is None or editor.element_type(tensor) != TensorProto.FLOAT:
            continue
        if editor.is_constant(weight) and editor.rank(weight) == 2:
            products[tensor].append(node)
    return dict(products)


def weight_rows(node: NodeProto, weight: Array) -> Array:
    """The weight of a product as ``[channels of the tensor, channels of the result]``."""
    return weight.T if attributes(node).get("transB", 0) else weight


def is_exact(node: NodeProto, weight: Array, exponents: Sequence[int]) -> bool:
    """Whether a weight times the powers of two is finite and keeps all bits."""
    scaled = _scaled(node, weight, exponents)
    return bool(
        np.isfinite(scaled).all()
        and np.array_equal(_scaled(node, scaled, [-exponent for exponent in exponents]), weight)
    )


def equalise_products(model: ModelProto, exponents: Exponents) -> tuple[str, ...]:
    """Divide tensors by powers of two and multiply the weights of their products, in place.

    Args:
        model: the prepared model.
        exponents: for tensors of ``products_by_tensor``; others are left out.

    Returns:
        The names of the products that changed.

    Raises:
        UsageError: if a tensor has another number of channels, as in another model than that of the exponents.
    """
    editor, products = GraphEditor(model.graph), products_by_tensor(model)
    changed: list[str] = []
    nodes: list[NodeProto] = []
    added: dict[str, NodeProto] = {}
    for tensor, powers in exponents.items():
        if tensor in products:
            added[tensor] = _equalise(editor, tensor, products[tensor], powers)
            changed += [node.name for node in products[tensor]]
    for node in model.graph.node:
        nodes.append(node)
        nodes.extend(added[name] for name in node.output if name in added)
    copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)
    if changed:
        drop_unused(model)
    return tuple(changed)


def _equalise(editor: GraphEditor, tensor: str, products: Sequence[NodeProto], exponents: Sequence[int]) -> NodeProto:
    """Multiply the weights of a tensor's products, which read the tensor divided from now on; returns the division."""
    weights = [_weight(editor, node) for node in products]
    channels = len(weight_rows(products[0], weights[0]))
    if len(exponents) != channels:
        raise UsageError(
            f"the plan is for another model: it has {len(exponents)} exponents for tensor '{tensor}', "
            f"of which this one has {channels} channels; tune again"
        )
    division = _division(editor, tensor, exponents)
    for node, weight in zip(products, weights, strict=True):
        node.input[0] = division.output[0]
        node.input[1] = editor.add_constant(f"{node.name}/{_label(exponents)}", _scaled(node, weight, exponents))
    return division


def _weight(editor: GraphEditor, product: NodeProto) -> Array:
    weight = editor.constant(product.input[1])
    if weight is None:
        raise ValueError(f"the weight of '{product.name}' is not constant")
    return weight


def _label(exponents: Sequence[int]) -> str:
    """Names a constant by its exponents, because files with several plans hold weights by name."""
    return f"equalised-{digest(str(list(exponents)))}"


def _division(editor: GraphEditor, tensor: str, exponents: Sequence[int]) -> NodeProto:
    factors = editor.add_constant(
        f"{tensor}/{_label(exponents)}", np.ldexp(np.float32(1), [-exponent for exponent in exponents])
    )
    output = editor.fresh(f"{tensor}/equalised")
    editor.graph.value_info.append(ValueInfoProto(name=output, type=editor.type(tensor)))
    name = editor.fresh_node(f"{tensor}/equalise")
    return helper.make_node("Mul", [tensor, factors], [output], name=name)


def _scaled(node: NodeProto, weight: Array, exponents: Sequence[int]) -> Array:
    rows = np.asarray(exponents, np.int32)
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(weight, rows if attributes(node).get("transB", 0) else rows[:, np.newaxis]).astype(weight.dtype)
