"""Takes caches that grow out of a model's graph: what appends to them is then up to who runs it.

A cache becomes an input with all positions, those of the call included, which are the rows of an output. Both have
positions along their first axis, so that a cache of fewer positions is the beginning of one with more, and a call's
rows lie behind the earlier ones. What reads the cache has it as before, transposed; what asks for the length before the
call gets it. Sizes that callers of a decoder choose are bound, but for the number of positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from onnx import ModelProto, NodeProto, TensorShapeProto, ValueInfoProto

from sartor.errors import UnsupportedModelError, UsageError
from sartor.onnx_model.dynamic.suggested_shapes import is_sum
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes
from sartor.onnx_model.graphs.noise import noise_of
from sartor.onnx_model.states.grown_caches import Growing
from sartor.runtime.driver.cache import Cache
from sartor.settings.size_range import OpenShapes, SizeRange

POSITIONS = "positions"
"""The size of a cut model that is left open."""
_USUAL_MOST = 2048
_NO_STATE = "with --no-state callers pass the caches"
_MASK = "attention_mask"


@dataclass(frozen=True)
class CutModel:
    """What a model is once its caches were taken out.

    Attributes:
        caches: the inputs and outputs that they are.
        shapes: of the inputs that have the number of positions.
        sources: what sizes were bound to, and why, in sentences.
    """

    caches: tuple[Cache, ...]
    shapes: OpenShapes
    sources: tuple[str, ...]


def cut_caches(model: ModelProto, growing: Sequence[Growing], given: OpenShapes) -> CutModel:
    """Take caches out of a model, in place.

    Args:
        model: as it was read.
        growing: its caches.
        given: shapes of inputs that the user gives, in which the length of a cache is a range.

    Raises:
        UnsupportedModelError: if more of the model depends on the length before the call than can be told.
        UsageError: if the shapes leave other sizes open than the length, or do not fit.
    """
    if noise_of(model):
        raise UnsupportedModelError(f"caches of a model with random operators are not kept; {_NO_STATE}")
    editor = GraphEditor(model.graph)
    sizes = _Sizes.of(model, growing, given)
    most, source = _most(growing, given, editor)
    _cut(model, growing, editor)
    _forget_symbols(model)
    shapes = {
        value.name: _bound(value, sizes, axis_of={each.input: each.axis for each in growing}, most=most)
        for value in _inputs(model)
    }
    opened = {name: shape for name, shape in shapes.items() if any(isinstance(size, SizeRange) for size in shape)}
    caches = tuple(Cache(each.input, each.output, each.axis) for each in growing)
    told = [f"{POSITIONS}=1..{most}, {source}", *sizes.told]
    return CutModel(caches, opened, tuple(told))


@dataclass
class _Sizes:
    """What the symbols of a model's inputs are.

    Attributes:
        known: sizes of symbols.
        totals: symbols of the number of positions, those of the call included.
        past: symbols of the number before.
        told: which symbols were bound though no one said to what.
    """

    known: dict[str, int] = field(default_factory=dict)
    totals: set[str] = field(default_factory=set)
    past: set[str] = field(default_factory=set)
    told: list[str] = field(default_factory=list)

    @staticmethod
    def of(model: ModelProto, growing: Sequence[Growing], given: OpenShapes) -> _Sizes:
        sizes, axes = _Sizes(), {each.input: each.axis for each in growing}
        dims = {value.name: _dims(value) for value in (*_inputs(model), *model.graph.output)}
        if unknown := next((name for name in given if name not in dims), None):
            raise UsageError(f"--shape names '{unknown}', which is no input of the model")
        for each in growing:
            sizes.past.add(str(dims[each.input][each.axis]))
            after = dims[each.output][each.axis : each.axis + 1]
            sizes.totals |= {str(size) for size in after if isinstance(size, str)}
        sizes.totals -= sizes.past
        own = {each for name, shape in dims.items() if name != _MASK for each in shape}
        sizes.totals |= {str(each) for each in dims.get(_MASK, ())[1:2] if isinstance(each, str) and each not in own}
        for name, shape in given.items():
            sizes._note(name, dims[name], shape, axes.get(name))
        return sizes

    def _note(self, name: str, dims: Sequence[int | str], shape: Sequence[int | SizeRange], axis: int | None) -> None:
        if len(dims) != len(shape):
            raise UsageError(f"--shape gives '{name}' {len(shape)} dimensions, and the model declares {len(dims)}")
        for index, (dim, size) in enumerate(zip(dims, shape, strict=True)):
            if index == axis or (isinstance(dim, str) and self.is_total(dim)):
                continue
            if isinstance(size, SizeRange):
                raise UsageError(
                    f"--shape gives '{name}' the range {size}, but caches that the module keeps have one number of "
                    f"sequences and of new positions in all calls; give one size, or {_NO_STATE}"
                )
            if isinstance(dim, str):
                self.known[dim] = size

    def is_total(self, symbol: str) -> bool:
        """Whether a symbol is the number of positions, those of the call included."""
        return symbol in self.totals or is_sum(symbol)

    def size(self, name: str, dim: int | str) -> int:
        """The size of a dimension of another input than a cache, or of another axis than the positions'.

        Raises:
            UnsupportedModelError: if it is the length before the call.
        """
        if isinstance(dim, int):
            return dim
        if dim in self.past:
            raise UnsupportedModelError(f"input '{name}' has as many elements as caches before the call; {_NO_STATE}")
        if dim not in self.known:
            self.known[dim] = 1
            self.told.append(f"{dim}=1, as caches that the module keeps are of one sequence, a position a call")
        return self.known[dim]


def _bound(value: ValueInfoProto, sizes: _Sizes, axis_of: Mapping[str, int], most: int) -> tuple[int | SizeRange, ...]:
    """Bind the dimensions of an input, but for the number of positions."""
    axis, found = axis_of.get(value.name), list[int | SizeRange]()
    dims = _dims(value)
    for index, dim in enumerate(dims):
        is_positions = index == axis or (axis is None and isinstance(dim, str) and sizes.is_total(dim))
        found.append(SizeRange(1, most) if is_positions else sizes.size(value.name, dim))
    if axis is not None:
        found.insert(0, found.pop(axis))
    _set_dims(value, [size if isinstance(size, int) else POSITIONS for size in found])
    return tuple(found)


def _inputs(model: ModelProto) -> Iterator[ValueInfoProto]:
    held = {each.name for each in model.graph.initializer}
    return (value for value in model.graph.input if value.name not in held)


def _dims(value: ValueInfoProto) -> list[int | str]:
    name, dims = value.name, value.type.tensor_type.shape.dim
    return [dim.dim_value if dim.dim_value > 0 else dim.dim_param or f"{name}[{axis}]" for axis, dim in enumerate(dims)]


def _set_dims(value: ValueInfoProto, dims: Iterable[int | str]) -> None:
    shape = value.type.tensor_type.shape
    del shape.dim[:]
    for each in dims:
        known = {"dim_value": each} if isinstance(each, int) else {"dim_param": each}
        shape.dim.append(TensorShapeProto.Dimension(**known))


def _cut(model: ModelProto, growing: Sequence[Growing], editor: GraphEditor) -> None:
    """Take caches out."""
    graph, first, last = model.graph, list[NodeProto](), list[NodeProto]()
    names, dropped = dict[str, str](), set[str]()
    for each in growing:
        emit = Emitter(editor, _appending(each, editor))
        rank = editor.rank(each.input) or 0
        others = [axis for axis in range(rank) if axis != each.axis]
        back = [0 if axis == each.axis else others.index(axis) + 1 for axis in range(rank)]
        whole = emit("Transpose", each.input, part="cache", perm=back)
        before = _before(emit, whole, each)
        first += emit.nodes
        new = emit.node.input[1]
        emit("Transpose", new, part="rows", perm=[each.axis, *others], output=each.output)
        last.append(emit.nodes[-1])
        names |= {each.joined: whole, each.output: whole, each.input: before}
        dropped |= {each.joined, each.output}
    kept = [each for each in graph.node if not dropped & set(each.output)]
    for node in kept:
        for index, name in enumerate(node.input):
            node.input[index] = names.get(name, name)
    nodes = [_copied(each) for each in (*first, *kept, *last)]
    del graph.node[:]
    graph.node.extend(nodes)
    for value in graph.output:
        if value.name in dropped:
            value.type.tensor_type.ClearField("shape")
    for value in [value for value in graph.value_info if value.name in dropped]:
        graph.value_info.remove(value)


def _appending(growing: Growing, editor: GraphEditor) -> NodeProto:
    """The node that appends to a cache, which nothing else reads but for its shape."""
    node = editor.producer(growing.joined)
    if node is None:
        raise ValueError(f"nothing computes '{growing.joined}'")
    for each in editor.consumers(growing.input):
        if each.op_type != "Shape" and growing.joined not in each.output:
            raise UnsupportedModelError(
                f"node '{each.name or each.op_type}' reads the cache '{growing.input}' beside the node that appends to "
                f"it, so that the module cannot keep it; {_NO_STATE}"
            )
    return node


def _copied(node: NodeProto) -> NodeProto:
    found = NodeProto()
    found.CopyFrom(node)
    return found


def _before(emit: Emitter, whole: str, growing: Growing) -> str:
    """A value with the shape that the cache has before the call; it is read by nodes that ask for the shape alone."""
    axis = emit.constant([growing.axis], "axis")
    new = emit("Gather", emit("Shape", emit.node.input[1], part="new_shape"), axis, part="new", axis=0)
    end = emit("Neg", new, part="end")
    return emit("Slice", whole, emit.constant([0], "start"), end, axis, part="before")


def _forget_symbols(model: ModelProto) -> None:
    """Drop names of sizes, some of which are bound now, from values inside."""
    for value in (*model.graph.value_info, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.HasField("dim_param"):
                dim.Clear()


def _most(growing: Sequence[Growing], given: OpenShapes, editor: GraphEditor) -> tuple[int, str]:
    """The most positions, and where the number comes from."""
    asked = {each.input: given[each.input][each.axis] for each in growing if each.input in given}
    for name, size in asked.items():
        if not isinstance(size, SizeRange) or size.multiple != 1:
            raise UsageError(
                f"--shape gives the cache '{name}' {size} positions, but it grows: give a range, as 1..512, or "
                f"{_NO_STATE}"
            )
    mosts = {size.most for size in asked.values() if isinstance(size, SizeRange)}
    if len(mosts) > 1:
        raise UsageError(f"--shape gives caches different lengths: {sorted(mosts)}")
    tables = sorted(_tables(editor), key=lambda table: table[1])
    if mosts:
        return mosts.pop(), "as given"
    return (tables[0][1], f"as long as the table '{tables[0][0]}'") if tables else (_USUAL_MOST, "the usual bound")


def _tables(editor: GraphEditor) -> Iterator[tuple[str, int]]:
    """Weights whose rows are taken by position, with the number of rows."""
    for node in editor.nodes:
        if node.op_type != "Gather" or node.domain or attributes(node).get("axis", 0):
            continue
        shape = editor.shape(node.input[0]) if editor.is_constant(node.input[0]) else None
        if shape is not None and len(shape) > 1 and shape[0] > 1 and _tells_positions(node.input[1], editor):
            yield node.input[0], shape[0]


def _tells_positions(name: str, editor: GraphEditor) -> bool:
    """Whether a value follows from positions or masks that callers give, or from sizes, and from nothing else."""
    pending, seen, is_told = [name], {name}, False
    while pending:
        current = pending.pop()
        node = editor.producer(current)
        if node is None and not editor.is_constant(current):
            if "position" not in current and "mask" not in current:
                return False
            is_told = True
        if node is None or node.op_type in ("Shape", "Size", "Constant"):
            is_told = is_told or (node is not None and node.op_type != "Constant")
            continue
        new = [each for each in node.input if each and each not in seen]
        seen.update(new)
        pending += new
    return is_told
