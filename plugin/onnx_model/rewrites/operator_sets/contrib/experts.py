"""Lowers ONNX Runtime's mixtures of experts, of floats and of weights in few bits, to products and a choice.

Of floats, weights of all experts are one matrix: what each makes of a token lies side by side, is weighted by the
router, which gives experts that are not chosen zero, and one more product adds all up. Where the chosen matrices are
far fewer than all, as for single tokens, they alone are read and multiplied, as are those in few bits. Definition:
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MoE
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from onnx import NodeProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, optional_input
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.rewrites.number_types.quantized import Lowering
from sartor.onnx_model.rewrites.operator_sets.contrib.blocks.expert_matrix import (
    QUANTISED,
    ExpertMatrix,
    matrix_of_blocks,
    matrix_of_floats,
)
from sartor.onnx_model.rewrites.operator_sets.contrib.expert_activations import GATED, PLAIN, ExpertActivation
from sartor.onnx_model.rewrites.operator_sets.contrib.expert_parts import ExpertParts
from sartor.onnx_model.rewrites.operator_sets.contrib.expert_routes import ExpertRoutes

_APART = 0
# Attributes that say that the node does nothing else.
_OFF: Mapping[str, tuple[Any, ...]] = {"quant_type": ("int",), "use_sparse_mixer": (0,), "weights_prepacked": (0, -1)}
# A matrix that is taken out of others is read, written and read again.
_TAKING_OUT = 3


class _Experts:
    """A node of either operator, with its matrices.

    Args:
        node: the operator.
        editor: of the graph.
        rows: how many tokens there are.
        matrices: the first, the second, and the one of gates that are apart, if any.
        halves: whether many rows of weights in few bits are multiplied in halves.
    """

    def __init__(
        self, node: NodeProto, editor: GraphEditor, rows: int, matrices: list[ExpertMatrix], *, halves: bool
    ) -> None:
        self._emit, self._rows, self._halves = Emitter(editor, node), rows, halves
        self._matrices = matrices
        self._first, self._second, *self._gates = matrices
        self._count = self._first.experts
        self._chosen = int(attributes(node).get("k", 1))
        self._routes = ExpertRoutes(self._emit, rows, self._count, self._chosen)
        self._activation = ExpertActivation(self._emit, self._second.depth)

    def nodes(self) -> list[NodeProto]:
        """The nodes."""
        emit, node = self._emit, self._emit.node
        tokens = emit("Reshape", node.input[0], self._shape(self._rows, self._depth), part="tokens")
        if self._first.blocks is not None:
            sizes = self._rows, self._chosen
            made = ExpertParts(emit, self._routes, self._matrices, *sizes, halves=self._halves).of(tokens)
        elif _TAKING_OUT * self._rows * self._chosen < self._count:
            made = self._by_chosen(tokens)
        else:
            made = self._by_all(tokens)
        emit("Reshape", made, self._sizes_of(node.input[0]), output=node.output[0])
        return emit.nodes

    @property
    def _depth(self) -> int:
        return self._first.depth

    def _shape(self, *sizes: int) -> str:
        return self._emit.constant(list(sizes), "shape")

    def _sizes_of(self, name: str) -> str:
        return self._emit.constant(list(self._emit.editor.shape(name) or ()), "sizes")

    def _number(self, value: float, hint: str) -> str:
        return self._emit.like(value, self._emit.node.input[0], hint)

    def _by_all(self, tokens: str) -> str:
        """All experts' results of all tokens, added up by weights that are mostly zero."""
        emit, rows, count = self._emit, self._rows, self._count
        first = self._product_by_all(tokens, self._first)
        gates = [self._product_by_all(tokens, matrix) for matrix in self._gates]
        inner = self._activation.of(first, gates)
        best, numbers = self._routes.chosen()
        weights = self._spread(best, numbers)
        column = emit("Reshape", weights, self._shape(rows, count, 1), part="weights_column")
        # What others overflow to would stay by a weight of zero.
        is_used = emit("Greater", column, emit.like(0, emit.node.input[1], "zero"), part="is_used")
        used = emit("Where", is_used, inner, self._number(0, "nothing"), part="used")
        weighted = emit("Mul", used, column, part="weighted")
        flat = emit("Reshape", weighted, self._shape(rows, count * self._second.depth), part="side_by_side")
        made = self._summed(flat)
        if self._second.bias:
            made = emit("Add", made, emit("MatMul", weights, self._second.bias, part="biases"), part="with_biases")
        return made

    def _spread(self, best: str, numbers: str) -> str:
        """The weights of all experts, ``[rows, experts]``, each at most once among the chosen.

        Numbers are compared and not scattered: IREE has no code that scatters into any number of rows.
        """
        emit, last = self._emit, self._emit.constant([-1], "last_axis")
        numbers, best = (emit("Unsqueeze", name, last, part="column_of_chosen") for name in (numbers, best))
        is_chosen = emit("Equal", numbers, emit.constant([*range(self._count)], "experts"), part="is_chosen")
        apart = emit("Where", is_chosen, best, emit.like(0, emit.node.input[1], "none"), part="weights_apart")
        return emit("ReduceSum", apart, emit.constant([1], "chosen_axis"), part="weights", keepdims=0)

    def _product_by_all(self, tokens: str, matrix: ExpertMatrix) -> str:
        """What all experts make of all tokens, ``[rows, experts, results]``."""
        emit, split = self._emit, self._shape(self._rows, self._count, matrix.results)
        joined = self._shape(self._count * matrix.results, matrix.depth)
        rows = emit("Reshape", matrix.name, joined, part="experts")
        made = emit("MatMul", tokens, emit("Transpose", rows, part="turned", perm=[1, 0]), part="by_all")
        made = emit("Reshape", made, split, part="per_expert")
        return emit("Add", made, matrix.bias, part="bias") if matrix.bias else made

    def _summed(self, flat: str) -> str:
        """The sum over experts of their second products, of what lies side by side."""
        emit, second = self._emit, self._second
        turned = emit("Transpose", second.name, part="second_turned", perm=[0, 2, 1])
        joined = emit("Reshape", turned, self._shape(self._count * second.depth, second.results), part="second_joined")
        return emit("MatMul", flat, joined, part="sum")

    def _by_chosen(self, tokens: str) -> str:
        """The products by matrices of chosen experts alone."""
        emit, rows, chosen = self._emit, self._rows, self._chosen
        best, numbers = self._routes.chosen()
        column = emit("Reshape", tokens, self._shape(rows, 1, self._depth, 1), part="column")
        first = self._product_by_chosen(column, self._first, numbers)
        gates = [self._product_by_chosen(column, matrix, numbers) for matrix in self._gates]
        inner = emit("Unsqueeze", self._activation.of(first, gates), emit.constant([-1], "axis"), part="inner_column")
        made = self._product_by_chosen(inner, self._second, numbers)
        weighted = emit("Mul", made, emit("Reshape", best, self._shape(rows, chosen, 1), part="best"), part="weighted")
        return emit("ReduceSum", weighted, emit.constant([1], "axis"), part="sum", keepdims=0)

    def _product_by_chosen(self, column: str, matrix: ExpertMatrix, numbers: str) -> str:
        """What chosen experts make of columns, ``[rows, chosen, results]``."""
        emit = self._emit
        taken = emit("Gather", matrix.name, numbers, part="chosen_experts", axis=0)
        made = emit("MatMul", taken, column, part="by_chosen")
        made = emit("Squeeze", made, emit.constant([-1], "axis"), part="per_expert")
        if not matrix.bias:
            return made
        return emit("Add", made, emit("Gather", matrix.bias, numbers, part="chosen_biases", axis=0), part="bias")


_Read = Callable[[NodeProto, GraphEditor, tuple[int, ...]], ExpertMatrix | None]


def _mixture(
    node: NodeProto, editor: GraphEditor, places: list[tuple[int, ...]], read: _Read, *, halves: bool = False
) -> list[NodeProto] | None:
    """The nodes of either operator.

    Args:
        node: the operator.
        editor: of its graph.
        places: of the operands of the first, the second and the third matrix.
        read: makes a matrix of them.
        halves: whether many rows of weights in few bits are multiplied in halves, which other sizes are not.
    """
    shape, routes = (editor.shape(node.input[index]) for index in (0, 1))
    kinds = [editor.element_type(node.input[index]) for index in (0, 1)]
    if shape is None or routes is None or not all(kinds):
        return None
    _refuse(node)
    settings = attributes(node)
    is_gated = str(settings.get("activation_type", "relu")).lower() == GATED
    is_apart = is_gated and settings.get("swiglu_fusion", _APART) == _APART
    if bool(optional_input(node, places[2][0])) is not is_apart:
        raise UnsupportedModelError(
            f"{describe_node(node)} has {'no' if is_apart else 'a'} third weight, where its activation "
            f"{'needs one' if is_apart else 'has none'}; export it with swiglu_fusion=1"
        )
    matrices = [read(node, editor, place) for place in (places if is_apart else places[:2])]
    if any(matrix is None for matrix in matrices):
        return None
    known = [matrix for matrix in matrices if matrix is not None]
    rows = math.prod(shape[:-1])
    _check_sizes(node, shape[-1], routes, rows, known, width=2 if is_gated and not is_apart else 1)
    return _Experts(node, editor, rows, known, halves=halves).nodes()


def _check_sizes(
    node: NodeProto, depth: int, routes: tuple[int, ...], rows: int, matrices: list[ExpertMatrix], width: int
) -> None:
    first, second = matrices[:2]
    fits = first.depth == depth and second.results == depth and first.results == width * second.depth
    experts = {matrix.experts for matrix in matrices}
    chosen = int(attributes(node).get("k", 1))
    if not fits or len(experts) != 1 or routes != (rows, first.experts) or not 0 < chosen <= first.experts:
        raise UnsupportedModelError(
            f"{describe_node(node)} has experts "
            f"{[(matrix.experts, matrix.results, matrix.depth) for matrix in matrices]}, "
            f"of which {chosen} are chosen, for {rows} tokens of {depth} and routes {list(routes)}, which do not fit; "
            "export the model again"
        )


def _refuse(node: NodeProto) -> None:
    """Raise UnsupportedModelError for what neither the definition for CPUs nor these nodes have."""
    settings = attributes(node)
    kind = str(settings.get("activation_type", "relu")).lower()
    if kind not in (*PLAIN, GATED):
        raise UnsupportedModelError(f"{describe_node(node)} has the activation {kind}; {', '.join(PLAIN)} or {GATED}")
    for name, values in _OFF.items():
        if settings.get(name, values[0]) not in values:
            raise UnsupportedModelError(
                f"{describe_node(node)} has {name}={settings[name]}, which is for GPUs; export it with {values[0]}"
            )


_FLOATS: list[tuple[int, ...]] = [(2, 3), (4, 5), (6, 7)]


def _moe(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """``MoE(x, routes, first, bias, second, bias, third, bias)``."""
    return _mixture(node, editor, _FLOATS, matrix_of_floats)


def _qmoe(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """``QMoE(x, routes, first, scales, bias, second, …, third, …, zero points, weights of routes)``."""
    return _mixture(node, editor, QUANTISED, matrix_of_blocks, halves=True)


def _qmoe_at_once(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    return _mixture(node, editor, QUANTISED, matrix_of_blocks)


EXPERTS: Mapping[str, Lowering] = {"MoE": _moe, "QMoE": _qmoe}
EXPERTS_ALIKE: Mapping[str, Lowering] = {"QMoE": _qmoe_at_once}
"""Those in the place of others where the nodes have to be the same for any number of tokens."""
