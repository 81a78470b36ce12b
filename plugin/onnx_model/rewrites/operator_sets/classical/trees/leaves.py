"""Programs that find the leaves of trees.

Both are of Nakandala et al., "A Tensor Compiler for Unified Machine Learning Prediction Serving" (Hummingbird, OSDI
2020, section 4.1): walks, which look the next node up in each step, and products with the paths to the leaves, which
suit trees of few nodes.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array
from sartor.onnx_model.rewrites.operator_sets.classical.trees.forest import Forest

# A walk looks three numbers up in each step, which takes as long as about this many products and sums.
_PRODUCTS_OF_A_STEP = 45


def suits_products(forest: Forest, depth: int) -> bool:
    """Whether to multiply by paths: the widest tree has few comparisons and leaves, and all are trees.

    Values have to be finite, as those of all leaves are multiplied, by 0 where a row does not arrive.
    """
    if not np.isfinite(forest.values).all():
        return False
    counts = [_inner_and_leaves(forest, int(root)) for root in forest.roots]
    if any(counted is None for counted in counts):
        return False
    inner, leaves = (max(len(counted[side]) for counted in counts if counted is not None) for side in (0, 1))
    return 0 < inner * leaves <= _PRODUCTS_OF_A_STEP * depth


def walked(emit: Emitter, forest: Forest, features: str, depth: int) -> str:
    """Values of the leaves at which rows arrive, [trees, rows, targets], by ``depth`` steps of all trees at once.

    Args:
        features: a value [features, rows].
    """
    children = emit.constant(np.stack([forest.when_false, forest.when_true], 1).reshape(-1), "children")
    tables = emit.constant(forest.features, "features"), emit.constant(forest.thresholds, "thresholds")
    nan = emit.constant(forest.nan_is_true, "nan") if forest.nan_is_true.any() else ""
    place = _first_step(emit, forest, features)
    for _ in range(depth - 1):
        feature, threshold = (emit("Gather", table, place, part="node", axis=0) for table in tables)
        number = emit("GatherElements", features, feature, part="feature", axis=0)
        holds = _holds(emit, number, threshold, emit("Gather", nan, place, part="nan", axis=0) if nan else "")
        side = emit("Cast", holds, part="side", to=TensorProto.INT64)
        pair = emit("Mul", place, emit.shared_constant(np.asarray(2, np.int64), "two"), part="pair")
        place = emit("Gather", children, emit("Add", pair, side, part="child"), part="step", axis=0)
    return emit("Gather", emit.constant(forest.values, "values"), place, part="values", axis=0)


def _first_step(emit: Emitter, forest: Forest, features: str) -> str:
    """The nodes [trees, rows] behind the roots, which are the same for all rows."""
    roots = forest.roots

    def column(values: Array, hint: str) -> str:
        return emit.constant(np.ascontiguousarray(values[roots][:, None]), hint)

    number = emit("Gather", features, emit.constant(forest.features[roots], "root"), part="root", axis=0)
    nan = column(forest.nan_is_true, "root_nan") if forest.nan_is_true[roots].any() else ""
    holds = _holds(emit, number, column(forest.thresholds, "root_threshold"), nan)
    return emit("Where", holds, column(forest.when_true, "true"), column(forest.when_false, "false"), part="step")


def _holds(emit: Emitter, number: str, threshold: str, nan: str) -> str:
    holds = emit("LessOrEqual", number, threshold, part="compare")
    if not nan:
        return holds
    return emit("Or", holds, emit("And", nan, emit("IsNaN", number, part="is_nan"), part="missing"), part="holds")


def multiplied(emit: Emitter, forest: Forest, features: str) -> str:
    """Sums of the values of all leaves at which rows arrive, [rows, targets].

    A leaf is reached where as many of the comparisons that have to hold do so as lie on its path, and none of the
    others: the path has 1 for the former, -1 for the latter and 0 beside it.

    Args:
        features: a value [features, rows].
    """
    paths = [_inner_and_leaves(forest, int(root)) or ([], []) for root in forest.roots]
    trees, inner, leaves = (
        len(paths),
        max(len(places) for places, _ in paths),
        max(len(values_of_leaves) for _, values_of_leaves in paths),
    )
    nodes = np.full((trees, inner), -1, np.int64)
    matrix, holding = np.zeros((trees, leaves, inner), np.float32), np.full((trees, leaves, 1), inner + 1, np.float32)
    values = np.zeros((trees, leaves, forest.values.shape[1]), np.float32)
    for tree, (compared, reached) in enumerate(paths):
        nodes[tree, : len(compared)] = compared
        column = {node: index for index, node in enumerate(compared)}
        for leaf, (place, path) in enumerate(reached):
            for node, is_true in path:
                matrix[tree, leaf, column[node]] = 1 if is_true else -1
            holding[tree, leaf], values[tree, leaf] = sum(is_true for _, is_true in path), forest.values[place]
    holds = _all_comparisons(emit, forest, features, nodes.reshape(-1))
    shape = emit.constant([trees, inner, -1], "comparisons")
    held = emit("MatMul", emit.constant(matrix, "paths"), emit("Reshape", holds, shape, part="by_tree"), part="paths")
    is_reached = emit("Equal", held, emit.constant(holding, "holding"), part="is_reached")
    flags = emit("Cast", is_reached, part="reached", to=TensorProto.FLOAT)
    flat = emit("Reshape", flags, emit.constant([trees * leaves, -1], "leaves"), part="leaves")
    rows = emit("Transpose", flat, part="by_row", perm=[1, 0])
    return emit("MatMul", rows, emit.constant(values.reshape(trees * leaves, -1), "values"), part="sums")


def _all_comparisons(emit: Emitter, forest: Forest, features: str, nodes: Array) -> str:
    """Whether comparisons hold, as numbers [nodes, rows]; that of a node -1 does not matter."""
    number = emit("Gather", features, emit.constant(forest.features[nodes], "features"), part="features", axis=0)
    flags = forest.nan_is_true[nodes]
    nan = emit.constant(flags[:, None], "nan") if flags.any() else ""
    holds = _holds(emit, number, emit.constant(forest.thresholds[nodes][:, None], "thresholds"), nan)
    return emit("Cast", holds, part="compared", to=TensorProto.FLOAT)


_Leaf = tuple[int, tuple[tuple[int, bool], ...]]


def _inner_and_leaves(forest: Forest, root: int) -> tuple[list[int], list[_Leaf]] | None:
    """The comparisons of a tree, and its leaves with the paths to them; None if two nodes lead to the same one."""
    inner: list[int] = []
    leaves: list[_Leaf] = []
    is_leaf, seen = forest.is_leaf, set[int]()
    waiting: list[_Leaf] = [(root, ())]
    while waiting:
        place, path = waiting.pop()
        if is_leaf[place]:
            leaves.append((place, path))
            continue
        if place in seen:
            return None
        seen.add(place)
        inner.append(place)
        waiting += [
            (int(forest.when_false[place]), (*path, (place, False))),
            (int(forest.when_true[place]), (*path, (place, True))),
        ]
    return inner, leaves
