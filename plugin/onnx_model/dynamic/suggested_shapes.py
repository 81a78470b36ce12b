"""Shapes to recommend for inputs with free dimensions: such that the model, as far as inference sees, accepts them."""

from __future__ import annotations

import ast
import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from onnx import ModelProto, NodeProto, TensorShapeProto, ValueInfoProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.dynamic.check_indices import check_indices
from sartor.onnx_model.dynamic.table_positions import fewest_rows, outside_table
from sartor.onnx_model.graphs.graph import MALFORMED, GraphEditor, attributes, static_shape
from sartor.onnx_model.graphs.infer import check_shapes, infer_shapes, without_weights
from sartor.onnx_model.graphs.noise import noise_of
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.operator_types.alike import GATES

Shapes = dict[str, tuple[int, ...]]

_IMAGE_RANK, _IMAGE_CHANNELS = 4, 3
_USUAL = (224, 128)
# Sizes of images and lengths that models are made for, tried if neither the usual ones nor those of weights fit.
_OTHERS = (32, 28, 64, 128, 256, 299, 320, 384, 416, 512, 640, 224, 96, 48, 16, 8, 1)
_BATCHES = (2, 4, 8, 16)
_MOST_SIZE = 1024
# The largest that ONNX's type for sizes holds.
_LARGEST_SIZE = 2**63 - 1
# Sums of sizes are short; longer symbols are names, however they read.
_LONGEST_SYMBOL = 100
# Inference of a model of a thousand nodes takes some hundredths of a second.
_MOST_TRIES, _MOST_NODES_INFERRED = 32, 40_000
_MOST_NODES_SEARCHED = 200
_FEW = 8
_CONVOLUTIONS = ("Conv", "ConvInteger", "ConvTranspose", "QLinearConv")
_FILTERS = {"QLinearConv": 3}
_WINDOWED = frozenset({"AveragePool", "Conv", "ConvInteger", "LpPool", "MaxPool", "QLinearConv"})
_KEEPING = frozenset({"Add", "Cast", "Clip", "Div", "Identity", "Mul", "Relu", "Sigmoid", "Sub", "Tanh"})


def suggested_shapes(model: ModelProto) -> Shapes:
    """Shapes of the inputs that have free dimensions, in the model's order; without those that follow from others.

    Sizes are usual ones (one sample, images of 224 by 224, lengths of 128) and those that the weights ask for. If
    inference finds that these contradict the model, sizes of weights and further usual ones are tried, for all free
    dimensions and then for one after the other.

    Args:
        model: whose bound dimensions are numbers; it is not changed.
    """
    inputs = free_inputs(model)
    return _needed(inputs, _fitting(model, inputs) or _assigned(inputs, _small_enough(model)))


def shape_advice(model: ModelProto) -> str:
    """How to bind free dimensions: ``with --shape x=1,3,224,224, or with other sizes``."""
    inputs = free_inputs(model)
    fitting = _fitting(model, inputs)
    if fitting is None:
        needed = _needed(inputs, _assigned(inputs, _small_enough(model)))
        names = ", ".join(f"'{name}' of {len(shape)}" for name, shape in needed.items())
        return f"by --shape to the sizes that the model is used with ({names})"
    return f"with {shape_options(_needed(inputs, fitting))}, or with other sizes"


def _small_enough(model: ModelProto) -> _Sizes:
    """Usual sizes where inference cannot say which fit: lengths by which a past and what follows it have positions in
    the model's tables."""
    image, length = _USUAL
    rows = fewest_rows(model)
    return _Sizes(image, length if rows is None else max(1, min(length, rows // 2)))


def _fitting(model: ModelProto, inputs: list[Free]) -> Shapes | None:
    """Shapes of these inputs that the model accepts; None if none were found."""
    nodes = max(1, len(model.graph.node))
    tries = max(2, min(_MOST_TRIES, _MOST_NODES_INFERRED // nodes))
    for sizes, _ in zip(_choices(model), range(tries), strict=False):
        assigned = _assigned(inputs, sizes)
        if contradicted(model, assigned) is None:
            return assigned
    return _one_by_one(model, inputs, _MOST_NODES_INFERRED // nodes) if nodes <= _MOST_NODES_SEARCHED else None


def _one_by_one(model: ModelProto, inputs: list[Free], tries: int) -> Shapes | None:
    """Shapes that fit, found by changing the size of one symbol at a time such that inference comes further."""
    known = _usual_sizes(inputs, _Sizes(*_USUAL))
    best = contradicted(model, shapes_of(inputs, known))
    candidates = _candidate_sizes(model)
    symbols = [(symbol, size) for symbol in known for size in candidates]
    improved = True
    while best is not None and improved:
        improved = False
        for symbol, size in symbols:
            tries -= 1
            if tries < 0:
                return None
            trial = {**known, symbol: size}
            reached = contradicted(model, shapes_of(inputs, trial))
            if reached is None or reached > best:
                known, best, improved = trial, reached, True
                break
    return shapes_of(inputs, known) if best is None else None


def _candidate_sizes(model: ModelProto) -> list[int]:
    """Sizes that weights and small constants of a model have, and small numbers."""
    sizes = {size for tensor in model.graph.initializer for size in tensor.dims}
    editor = GraphEditor(model.graph)
    for tensor in model.graph.initializer:
        values = editor.constant(tensor.name) if math.prod(tensor.dims) <= _FEW else None
        if values is not None and values.dtype.kind == "i":
            # What an index needs is one more.
            sizes |= {abs(int(value)) + more for value in values.flat for more in (0, 1)}
            sizes.add(int(values.sum()))
    return sorted({*range(1, _FEW + 1), *(size for size in sizes if 0 < size <= _MOST_SIZE)})


def shape_options(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """The command line's options that bind inputs to shapes, quoted for a shell."""
    return " ".join(f"--shape {shlex.quote(name + '=' + ','.join(map(str, shape)))}" for name, shape in shapes.items())


@dataclass(frozen=True)
class _Sizes:
    """Sizes to try: of images, of other dimensions, and of the first dimension."""

    image: int
    length: int
    batch: int = 1


@dataclass
class Free:
    """An input with free dimensions.

    Attributes:
        name: the input's.
        dims: a number if the dimension is bound, otherwise its symbol, which is made up for nameless dimensions.
        asked: sizes by axis that a reader's weights ask for.
    """

    name: str
    dims: list[int | str]
    asked: dict[int, int] = field(default_factory=dict)


def free_inputs(model: ModelProto) -> list[Free]:
    """The inputs with free dimensions."""
    editor = GraphEditor(model.graph)
    noise = {drawn.name for drawn in noise_of(model)}
    free = []
    for value in model.graph.input:
        if editor.is_constant(value.name) or not _is_free(value) or value.name in noise:
            continue
        rank, asked = _asked(value.name, editor)
        dims = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape"):
            rank = len(dims)
        names = [_symbol(value.name, axis, dims) for axis in range(_IMAGE_RANK if rank is None else rank)]
        positive = {axis % len(names): size for axis, size in asked.items() if -len(names) <= axis < len(names)}
        free.append(Free(value.name, names, positive))
    return free


def _is_free(value: ValueInfoProto) -> bool:
    shape = static_shape(value.type)
    return shape is None or min(shape, default=1) <= 0


def _symbol(name: str, axis: int, dims: Sequence[TensorShapeProto.Dimension]) -> int | str:
    if axis >= len(dims):
        return f"{name}/{axis}"
    return dims[axis].dim_value if dims[axis].dim_value > 0 else dims[axis].dim_param or f"{name}/{axis}"


def _asked(name: str, editor: GraphEditor) -> tuple[int | None, dict[int, int]]:
    """The rank, if known, and sizes by axis that the readers of a value ask for."""
    rank: int | None = None
    sizes: dict[int, int] = {}
    pending, seen = [name], {name}
    while pending:
        current = pending.pop()
        for node in editor.consumers(current):
            reader = _READERS.get(node.op_type)
            asked = reader(node, current, editor) if reader and not node.domain else None
            if asked is not None:
                rank = rank or asked[0]
                sizes = {**asked[1], **sizes}
            elif node.op_type in _KEEPING and node.output[0] not in seen:
                seen.add(node.output[0])
                pending.append(node.output[0])
    return rank, sizes


_Asked = tuple[int | None, dict[int, int]] | None


def _conv(node: NodeProto, name: str, editor: GraphEditor) -> _Asked:
    shape = editor.shape(node.input[_FILTERS.get(node.op_type, 1)])
    if not shape or node.input[0] != name:
        return None
    channels = shape[0] if node.op_type == "ConvTranspose" else shape[1] * attributes(node).get("group", 1)
    return len(shape), {1: channels}


def _product(node: NodeProto, name: str, editor: GraphEditor) -> _Asked:
    left = node.input[0] == name
    shape = editor.shape(node.input[1 if left else 0])
    if not shape or len(shape) < 2:
        return None
    settings = attributes(node)
    if node.op_type == "Gemm" and left:
        return 2, {0 if settings.get("transA") else 1: shape[1 if settings.get("transB") else 0]}
    return 2, {-1: shape[-2]} if left else {-2: shape[-1]}


def _recurrent(node: NodeProto, name: str, editor: GraphEditor) -> _Asked:
    shape = editor.shape(node.input[1])
    return (3, {2: shape[2]}) if shape and node.input[0] == name else None


def _norm(node: NodeProto, name: str, editor: GraphEditor) -> _Asked:
    shape = editor.shape(node.input[1])
    return (None, {1: shape[0]}) if shape and node.input[0] == name else None


def _repeats(node: NodeProto, name: str, editor: GraphEditor) -> _Asked:
    rank = editor.rank(node.input[0])
    return (1, {0: rank}) if rank and node.input[1] == name else None


def _gather(node: NodeProto, name: str, editor: GraphEditor) -> _Asked:
    return (2, {}) if node.input[1] == name else None


_READERS: Mapping[str, Callable[[NodeProto, str, GraphEditor], _Asked]] = {
    **dict.fromkeys(_CONVOLUTIONS, _conv),
    **dict.fromkeys(("Gemm", "MatMul"), _product),
    **dict.fromkeys(GATES, _recurrent),
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization"), _norm),
    "Gather": _gather,
    "Tile": _repeats,
}


def _choices(model: ModelProto) -> Iterator[_Sizes]:
    """Sizes to try, the usual ones first, then the frequent ones among the dimensions of weights."""
    yield _Sizes(*_USUAL)
    counts = Counter(size for tensor in model.graph.initializer for size in set(tensor.dims) if size <= _MOST_SIZE)
    for size in dict.fromkeys((*_OTHERS[:4], *sorted(counts, key=lambda count: (-counts[count], -count)), *_OTHERS)):
        yield _Sizes(size, size)
    for batch in _BATCHES:
        yield _Sizes(*_USUAL, batch)


def _assigned(inputs: list[Free], sizes: _Sizes) -> Shapes:
    """A shape per input of usual sizes."""
    return shapes_of(inputs, _usual_sizes(inputs, sizes))


def _usual_sizes(inputs: list[Free], sizes: _Sizes) -> dict[str, int]:
    """A usual size for each symbol, or one that a reader asks for."""
    known: dict[str, int] = {}
    for input_ in inputs:
        for axis, dim in enumerate(input_.dims):
            if isinstance(dim, str) and not is_sum(dim):
                known.setdefault(dim, input_.asked.get(axis, _usual(input_, axis, sizes)))
    return known


def shapes_of(inputs: list[Free], known: Mapping[str, int]) -> Shapes:
    """A shape per input: equal symbols are equal, and a symbol such as ``past + 1`` has the value of that sum."""
    return {
        input_.name: tuple(
            dim if isinstance(dim, int) else known.get(dim) or _evaluated(dim, known) for dim in input_.dims
        )
        for input_ in inputs
    }


def _usual(free: Free, axis: int, sizes: _Sizes) -> int:
    if axis == 0:
        return sizes.batch
    if is_image_side(free, axis):
        return sizes.image
    return _IMAGE_CHANNELS if len(free.dims) == _IMAGE_RANK else sizes.length


def is_image_side(free: Free, axis: int) -> bool:
    """Whether a dimension is the height or width of an image."""
    return len(free.dims) == _IMAGE_RANK and axis > 1


def is_sum(symbol: str) -> bool:
    """Whether a symbol is a sum, difference or product of others."""
    return any(operator in symbol for operator in "+-*") and _terms(symbol) is not None


def terms_of(symbol: str, symbols: Sequence[str]) -> tuple[str, ...]:
    """The terms of a symbol that is a sum of others of these, and of numbers; none if it is something else."""
    terms = tuple(symbol.split(" + "))
    others = {name for name in symbols if name != symbol}
    return terms if all(term in others or term.isdigit() for term in terms) else ()


def _terms(symbol: str) -> ast.expr | None:
    """The expression of names, integers, sums, differences and products that a symbol is; None if it is no such."""
    if len(symbol) > _LONGEST_SYMBOL:
        return None
    try:
        tree = ast.parse(symbol.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    allowed = (ast.BinOp, ast.Name, ast.Constant, ast.Load, ast.Add, ast.Sub, ast.Mult)
    parts = list(ast.walk(tree))
    integers = all(type(part.value) is int for part in parts if isinstance(part, ast.Constant))
    return tree if integers and all(isinstance(part, allowed) for part in parts) else None


def _evaluated(symbol: str, known: Mapping[str, int]) -> int:
    def value(part: ast.expr) -> int:
        if isinstance(part, ast.BinOp):
            left, right = value(part.left), value(part.right)
            return left * right if isinstance(part.op, ast.Mult) else left + (right if _adds(part) else -right)
        if isinstance(part, ast.Constant):
            return int(str(part.value))
        return known.get(part.id, 1) if isinstance(part, ast.Name) else 1

    tree = _terms(symbol)
    return min(max(1, value(tree)), _LARGEST_SIZE) if tree is not None else 1


def _adds(part: ast.BinOp) -> bool:
    return isinstance(part.op, ast.Add)


def contradicted(model: ModelProto, shapes: Shapes) -> int | None:
    """The index of the first node that contradicts these shapes, or reads another number of elements, a smaller image,
    or what lies behind a dimension; None if there is none."""
    copy = without_weights(model)
    for value in copy.graph.input:
        if value.name in shapes:
            del value.type.tensor_type.shape.dim[:]
            value.type.tensor_type.shape.dim.extend(
                TensorShapeProto.Dimension(dim_value=size) for size in shapes[value.name]
            )
    del copy.graph.value_info[:]
    for value in copy.graph.output:
        value.type.tensor_type.ClearField("shape")
    try:
        infer_shapes(copy)
        check_shapes(copy)
        check_indices(copy)
    except UnsupportedModelError as error:
        named = (index for index, node in enumerate(copy.graph.node) if describe_node(node) in str(error))
        return next(named, 0)
    except MALFORMED:
        return 0
    editor = GraphEditor(copy.graph)
    refused = next((index for index, node in enumerate(editor.nodes) if not _may_run(node, editor)), None)
    outside = outside_table(copy)
    return refused if outside is None else min(outside, len(editor.nodes) if refused is None else refused)


def _may_run(node: NodeProto, editor: GraphEditor) -> bool:
    try:
        return _agrees(node, editor) and _has_windows(node, editor)
    except MALFORMED:
        return False


def _has_windows(node: NodeProto, editor: GraphEditor) -> bool:
    """Whether the windows of a convolution or pooling fit its input: inference rounds a negative rest up to one."""
    shape, settings = editor.shape(node.input[0]) if node.input else None, attributes(node)
    is_convolution = node.op_type in _CONVOLUTIONS
    weight = editor.shape(node.input[_FILTERS.get(node.op_type, 1)]) if is_convolution else None
    kernel = settings.get("kernel_shape") or list((weight or ())[2:])
    padding = settings.get("auto_pad", "NOTSET")
    if shape is None or node.domain or node.op_type not in _WINDOWED or padding not in ("NOTSET", "VALID"):
        return True
    rank = len(kernel)
    pads, dilations = settings.get("pads", [0] * 2 * rank), settings.get("dilations", [1] * rank)
    return all(
        size + pads[axis] + pads[axis + rank] > dilations[axis] * (kernel[axis] - 1)
        for axis, size in enumerate(shape[2 : 2 + rank])
    )


def _agrees(node: NodeProto, editor: GraphEditor) -> bool:
    """Whether shapes agree that ONNX's inference does not compare."""
    shape = editor.shape(node.input[0]) if node.input else None
    if node.domain or shape is None:
        return True
    result = editor.shape(node.output[0])
    if result is not None and min(result, default=1) <= 0 < min(shape, default=1):
        return False
    if node.op_type == "Reshape" and result is not None:
        return math.prod(shape) == math.prod(result)
    asked = _conv(node, node.input[0], editor) if node.op_type in _CONVOLUTIONS else None
    return asked is None or len(shape) < 2 or shape[1] == asked[1][1]


def _needed(inputs: list[Free], shapes: Shapes) -> Shapes:
    """Without the inputs whose free dimensions are all symbols of earlier inputs."""
    bound: set[str] = set()
    needed = {}
    for input_ in inputs:
        symbols = {dim for dim in input_.dims if isinstance(dim, str)}
        if not symbols <= bound:
            needed[input_.name] = shapes[input_.name]
        bound |= {symbol for symbol in symbols if not symbol.startswith(f"{input_.name}/")}
    return needed
