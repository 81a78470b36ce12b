"""Changes a model and its inputs by about the size of rounding errors, to measure the effect on the outputs.

Every weight that is multiplied and every real input is changed at random by up to one unit in its last place. That is
about the error of each product in the model's arithmetic (Monte Carlo arithmetic, Parker 1997), and all later results
are rounded differently too. So are results of Erf and Tanh, which end at -1 and 1: of a sum with 1 that cancels, as in
GELU, only their error is left. Inputs of quantised models are changed by up to one step of 8 bits, as less may change
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes
import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor
from sartor.onnx_model.graphs.halves import HALVES, widened_eps
from sartor.onnx_model.graphs.held_data import holding_tensor
from sartor.onnx_model.graphs.infer import infer_shapes
from sartor.onnx_model.graphs.tensor_data import to_array
from sartor.onnx_model.graphs.walk import nodes
from sartor.onnx_model.rewrites.arithmetic.fourier import ROOTS_OF_UNITY

# Indices of inputs that are multiplied, or that are tables of values to be multiplied.
_MULTIPLIED: Mapping[str, tuple[int, ...]] = {
    "Conv": (1, 2),
    "ConvTranspose": (1, 2),
    "Einsum": (0, 1),
    "GRU": (1, 2, 3),
    "Gather": (0,),
    "Gemm": (0, 1, 2),
    "LSTM": (1, 2, 3),
    "MatMul": (0, 1),
    "RNN": (1, 2, 3),
}
_REALS = (TensorProto.FLOAT, TensorProto.DOUBLE, *HALVES)
_QUANTISING = frozenset({"DynamicQuantizeLinear", "QuantizeLinear"})
# Functions with an error of a unit in the last place, and the element types in which it is known.
_SATURATING = frozenset({"Erf", "Tanh"})
_FUNCTION_ROUNDOFF: Mapping[int, float] = {TensorProto.FLOAT: 2.0**-23, TensorProto.DOUBLE: 2.0**-52}
_STEP = 2.0**-8
_EPS_BF16 = 2.0**-7
# Prime, so that rows of weights get different changes.
_PERIOD = 65_521


def is_half(model: ModelProto) -> bool:
    """Whether weights or inputs are in f16 or bf16, or were before they were widened, so that the model rounds so."""
    types = [tensor.data_type for tensor in model.graph.initializer]
    types += [value.type.tensor_type.elem_type for value in model.graph.input]
    return widened_eps(model) > 0 or not HALVES.isdisjoint(types)


def is_quantising(model: ModelProto) -> bool:
    """Whether the model rounds values to 8 bits."""
    made = {name: node.op_type for node in model.graph.node for name in node.output}
    return any(
        node.op_type in _QUANTISING or (node.op_type == "Round" and made.get(node.input[0]) == "Div")
        for node in nodes(model)
    )


def disturb(model: ModelProto, seed: int) -> None:
    """Change all weights that are multiplied and what saturating functions give, and make Sigmoid more exact, in place.

    Weights that were widened change by a unit of the type that the model declares. ONNX Runtime's Sigmoid has no
    correct digit below 1e-7 (docs/records/accuracy.md).
    """
    expand_sigmoid(model)
    _disturb_functions(model, -1.0 if seed % 2 else 1.0)
    names = {node.input[index] for node in model.graph.node for index in _multiplied(node)}
    random, least = np.random.default_rng(seed), widened_eps(model)
    for tensor in model.graph.initializer:
        if tensor.name in names and tensor.data_type in _REALS:
            array = to_array(tensor)
            changed = _turned(array, random) if ROOTS_OF_UNITY in tensor.name else _changed(array, random, least)
            tensor.CopyFrom(holding_tensor(changed, tensor.name))


def disturbed_feeds(feeds: Mapping[str, Array], seed: int, *, quantised: bool) -> dict[str, Array]:
    """Inputs changed in the same way; integers and booleans are not changed, nor whole numbers in a float.

    These may be indices or a mask, and a number that is a little less is another index. Quantised models, whose weights
    are not changed, have nothing else to be disturbed.
    """
    random = np.random.default_rng(seed)
    least = _STEP if quantised else 0.0
    return {
        name: _changed(array, random, least) if _is_changed(array, quantised=quantised) else array
        for name, array in feeds.items()
    }


def changes_feeds(feeds: Mapping[str, Array], *, quantised: bool) -> bool:
    """Whether ``disturbed_feeds`` changes any input."""
    return any(_is_changed(array, quantised=quantised) for array in feeds.values())


def _is_changed(array: Array, *, quantised: bool) -> bool:
    return _is_real(array) and (quantised or not _is_whole(array))


def _is_whole(array: Array) -> bool:
    with np.errstate(invalid="ignore"):
        return bool(np.array_equal(array, np.rint(array)))


def _multiplied(node: NodeProto) -> list[int]:
    return [index for index in _MULTIPLIED.get(node.op_type, ()) if index < len(node.input)]


def _is_real(array: Array) -> bool:
    return array.dtype.kind == "f" or bool(array.dtype == ml_dtypes.bfloat16)


def _changed(array: Array, random: np.random.Generator, least: float) -> Array:
    """Change every element by up to one unit in the last place, or by the fraction ``least`` of it if that is more."""
    standard = array.dtype.kind == "f"
    wide = np.promote_types(array.dtype, np.float32) if standard else np.dtype(np.float32)
    share = max(float(np.finfo(array.dtype).eps) if standard else _EPS_BF16, least)
    # Computed in the type of the weights, to save memory.
    factors = (1.0 + share * random.uniform(-1.0, 1.0, min(array.size, _PERIOD))).astype(wide)
    return np.asarray(array.astype(wide, copy=False) * np.resize(factors, array.shape)).astype(array.dtype)


def _turned(array: Array, random: np.random.Generator) -> Array:
    """Change every element of a Fourier matrix by up to one unit in the last place of the largest.

    Transforms by other means compute cosines of rounded angles, none of which is zero.
    """
    largest = np.full(array.shape, np.abs(array).max(initial=0.0), array.dtype)
    return np.asarray(array + (_changed(largest, random, 0.0) - largest), array.dtype)


def _disturb_functions(model: ModelProto, direction: float) -> None:
    """Multiply what saturating functions give by one and a unit in the last place, up or down, in place."""
    if not any(node.op_type in _SATURATING for node in model.graph.node):
        return
    infer_shapes(model)
    editor = GraphEditor(model.graph)

    def changed(node: NodeProto) -> list[NodeProto] | None:
        kind = editor.element_type(node.input[0]) if node.op_type in _SATURATING else TensorProto.UNDEFINED
        if kind not in _FUNCTION_ROUNDOFF:
            return None
        dtype = helper.tensor_dtype_to_np_dtype(kind)
        factor = editor.add_constant("factor", np.array(1.0 + direction * _FUNCTION_ROUNDOFF[kind], dtype))
        emit, result = Emitter(editor, node), node.output[0]
        emit("Mul", emit.copy([*node.input], editor.fresh(result)), factor, part="disturbed", output=result)
        return emit.nodes

    editor.rewrite(changed)


def expand_sigmoid(model: ModelProto) -> None:
    """Replace every Sigmoid by 1 / (1 + exp(-x)), whose relative error is that of exp, in place."""
    if not any(node.op_type == "Sigmoid" for node in model.graph.node):
        return
    infer_shapes(model)
    editor = GraphEditor(model.graph)

    def expanded(node: NodeProto) -> list[NodeProto] | None:
        kind = editor.element_type(node.input[0]) if node.op_type == "Sigmoid" else TensorProto.UNDEFINED
        if kind not in (TensorProto.FLOAT, TensorProto.DOUBLE):
            return None
        dtype = np.float32 if kind == TensorProto.FLOAT else np.float64
        one = editor.add_constant("one", np.ones((), dtype))
        names = [editor.fresh(f"{node.output[0]}_{step}") for step in ("negative", "exponential", "sum")]
        steps = (("Neg", node.input[0]), ("Exp", names[0]), ("Add", names[1], one), ("Reciprocal", names[2]))
        return [
            NodeProto(op_type=operator, name=editor.fresh_node(operator), input=read, output=[name])
            for (operator, *read), name in zip(steps, (*names, node.output[0]), strict=True)
        ]

    editor.rewrite(expanded)
