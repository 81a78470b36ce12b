"""Takes caches that grow out of a model's graph: what appends to them is then up to who runs it.

A cache becomes an input with all positions, those of the call included, which are the rows of an output. Both have
positions along their first axis, so that a cache of fewer positions is the beginning of one with more, and a call's
rows lie behind the earlier ones. What reads the cache has it as before, transposed; what asks for the length before the
call gets it, and values that are computed from that length follow from an input. Sizes that callers of a decoder choose
are bound, but for the number of positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from onnx import ModelProto, NodeProto, ValueInfoProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor
from sartor.onnx_model.graphs.noise import noise_of
from sartor.onnx_model.states.call_sizes import (
    NO_STATE,
    CallSizes,
    dims_of,
    inputs_of,
    is_encoded,
    is_mask,
    is_own,
    tokens_of,
)
from sartor.onnx_model.states.counted_positions import count_positions
from sartor.onnx_model.states.grown_caches import Growing
from sartor.onnx_model.states.open_positions import (
    POSITIONS,
    bound_dims,
    forget_symbols,
    most_positions,
    opened_shapes,
    set_dims,
)
from sartor.runtime.driver.bound_input import BoundInput
from sartor.runtime.driver.cache import BEFORE, Cache
from sartor.settings.size_range import OpenShapes, SizeRange

# Tokens of a prompt that a call takes: enough for products to reuse weights, few enough to fill up the last call.
_PROMPT, _PROMPT_PARTS, _LEAST_PROMPT = 128, 4, 4
# Those of further calls, for short prompts and for what is left of others: in 32 rows as in 128 most of the time goes
# into sums, in 16 less is filled up.
_SHORTER, _TIMES_SHORTER = (32, 16), 2
_TOKENS_RANK = 2


@dataclass(frozen=True)
class CutModel:
    """What a model is once its caches were taken out.

    Attributes:
        caches: the inputs and outputs that they are.
        shapes: of the inputs that have the number of positions.
        sources: what sizes were bound to, and why, in sentences.
        dtypes: numpy's names of the element types that caches have in the model, where they are kept in float32.
        prompts: shapes of inputs with which a call has several tokens in place of one, of fewer and fewer; none if it
            cannot.
        fixed: what the model takes by inputs that it no longer has.
        encoded: inputs that an encoder gave, of lengths that are left open.
        ranges: of sizes that no input of ``shapes`` has.
    """

    caches: tuple[Cache, ...]
    shapes: OpenShapes
    sources: tuple[str, ...]
    prompts: tuple[OpenShapes, ...] = ()
    dtypes: Mapping[str, str] = field(default_factory=dict)
    fixed: tuple[BoundInput, ...] = ()
    encoded: tuple[str, ...] = ()
    ranges: Mapping[str, SizeRange] = field(default_factory=dict)

    def explained(self, error: UnsupportedModelError) -> UnsupportedModelError:
        """Why a model that was cut cannot be imported for any size."""
        if not self.encoded:
            return error
        names = ", ".join(f"'{name}'" for name in self.encoded)
        return UnsupportedModelError(
            f"{error}; lengths of what an encoder gave are left open, of {names}: if the model needs others of them, "
            "give each of these inputs fixed sizes by --shape"
        )


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
        raise UnsupportedModelError(f"caches of a model with random operators are not kept; {NO_STATE}")
    editor = GraphEditor(model.graph)
    sizes = CallSizes.of(model, growing, given)
    new, axis_of = sizes.new(model), {growth.input: growth.axis for growth in growing}
    most, source = most_positions(model, editor, growing, given, sizes)
    prompts = tuple(_prompts(model, growing, given, sizes, most))
    _cut(model, growing, editor)
    forget_symbols(model)
    positions = SizeRange(new, most)
    shapes = {value.name: bound_dims(value, sizes, axis_of, positions) for value in inputs_of(model)}
    opened = opened_shapes(shapes)
    # With the largest lengths of what an encoder gave, and small ones.
    lengths = [False, True] if sizes.encoded else [False]
    shapes_at = [partial(_shapes_at, shapes, positions, is_small=is_small) for is_small in lengths]
    count_positions(model, BEFORE, shapes_at, new, most)
    caches = tuple(Cache(growth.input, growth.output, growth.axis) for growth in growing)
    told = [f"{POSITIONS}={new}..{most}, {source}", *sizes.told]
    encoded = tuple(name for name in opened if is_encoded(name) and name not in axis_of)
    return CutModel(caches, opened, tuple(told), prompts, encoded=encoded)


def open_caches(model: ModelProto, growing: Sequence[Growing], given: OpenShapes) -> CutModel:
    """Leave the number of positions open in a model whose callers pass the caches, in place: these have as many
    positions as the model has behind a call, less those of the call.

    Arguments and errors are those of ``cut_caches``, but that the given length of a cache is that before a call.
    """
    sizes = CallSizes.of(model, growing, given)
    new, axis_of = sizes.new(model), {cache.input: cache.axis for cache in growing}
    most, source = most_positions(model, GraphEditor(model.graph), growing, given, sizes, are_before=True)
    positions, shapes = SizeRange(new, most), dict[str, tuple[int | SizeRange, ...]]()
    for value in inputs_of(model):
        if value.name in axis_of:
            _shift(value, sizes, axis_of[value.name], new)
        else:
            shapes[value.name] = bound_dims(value, sizes, {}, positions)
    forget_symbols(model)
    told = [f"{POSITIONS}={new}..{most}, {source}; caches have {new} less", *sizes.told]
    return CutModel((), opened_shapes(shapes), tuple(told), ranges={POSITIONS: positions})


def _shift(value: ValueInfoProto, sizes: CallSizes, axis: int, new: int) -> None:
    """Write the dimensions of a cache as it is before a call."""
    dims = dims_of(value)
    shifted = f"{POSITIONS} - {new}"
    set_dims(value, [shifted if at == axis else sizes.size(value.name, dim) for at, dim in enumerate(dims)])


def _shapes_at(shapes: OpenShapes, positions: SizeRange, number: int, *, is_small: bool) -> dict[str, tuple[int, ...]]:
    """Shapes with a number of positions, and small or the largest lengths of what an encoder gave."""

    def at(size: int | SizeRange) -> int:
        if size is positions:
            return number
        if isinstance(size, SizeRange):
            # Operators treat a size of 1 in a way of its own.
            small = size.least if size.least > 1 else size.least + size.multiple
            return small if is_small else size.most
        return size

    return {name: tuple(map(at, shape)) for name, shape in shapes.items()}


def _prompts(
    model: ModelProto, growing: Sequence[Growing], given: OpenShapes, sizes: CallSizes, most: int
) -> Iterator[OpenShapes]:
    """Shapes of calls with several tokens, of a model that leaves their number open and takes nothing else."""
    count = min(_PROMPT, most // _PROMPT_PARTS)
    tokens = [value for value in inputs_of(model) if value.name not in {growth.input for growth in growing}]
    if count < _LEAST_PROMPT or not all(is_mask(value.name) or is_own(value.name) for value in tokens):
        return
    shapes = {value.name: dims_of(value) for value in tokens if is_own(value.name)}
    opened = sizes.free - sizes.said
    if not shapes or not all(len(dims) == _TOKENS_RANK and dims[1] in opened for dims in shapes.values()):
        return
    cache = next(value for value in inputs_of(model) if value.name == growing[0].input)
    lengths = [
        SizeRange(1, most) if axis == growing[0].axis else sizes.size(cache.name, dim)
        for axis, dim in enumerate(dims_of(cache))
    ]
    for tokens_of_call in (count, *(shorter for shorter in _SHORTER if _TIMES_SHORTER * shorter <= count)):
        own = {name: (sizes.size(name, dims[0]), tokens_of_call) for name, dims in shapes.items()}
        yield {**given, **own, cache.name: tuple(lengths)}


def _cut(model: ModelProto, growing: Sequence[Growing], editor: GraphEditor) -> None:
    """Take caches out."""
    graph, first, last, tokens = model.graph, list[NodeProto](), list[NodeProto](), tokens_of(model)
    names, dropped = dict[str, str](), set[str]()
    for growth in growing:
        emit = Emitter(editor, _appending(growth, editor))
        rank = editor.rank(growth.input) or 0
        others = [axis for axis in range(rank) if axis != growth.axis]
        back = [0 if axis == growth.axis else others.index(axis) + 1 for axis in range(rank)]
        whole = emit("Transpose", growth.input, part="cache", perm=back)
        before = _before(emit, whole, growth, tokens)
        first += emit.nodes
        new = emit.node.input[1]
        emit("Transpose", new, part="rows", perm=[growth.axis, *others], output=growth.output)
        last.append(emit.nodes[-1])
        names |= {growth.joined: whole, growth.output: whole, growth.input: before}
        dropped |= {growth.joined, growth.output}
    kept = [node for node in graph.node if not dropped & set(node.output)]
    for node in kept:
        for index, name in enumerate(node.input):
            node.input[index] = names.get(name, name)
    nodes = [_copied(node) for node in (*first, *kept, *last)]
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
    for consumer in editor.consumers(growing.input):
        if consumer.op_type != "Shape" and growing.joined not in consumer.output:
            raise UnsupportedModelError(
                f"node '{consumer.name or consumer.op_type}' reads the cache '{growing.input}' beside the node that "
                f"appends to it, so that the module cannot keep it; {NO_STATE}"
            )
    return node


def _copied(node: NodeProto) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    return copy


def _before(emit: Emitter, whole: str, growing: Growing, tokens: str) -> str:
    """A value with the shape that the cache has before the call; it is read by nodes that ask for the shape alone.

    The call's tokens are counted, where they are known, as what is appended may follow from that shape: tokens are
    embedded with their positions, which begin behind the cache.
    """
    axis = emit.constant([growing.axis], "axis")
    counted, place = (tokens, emit.constant([1], "axis")) if tokens else (emit.node.input[1], axis)
    new = emit("Gather", emit("Shape", counted, part="new_shape"), place, part="new", axis=0)
    end = emit("Neg", new, part="end")
    return emit("Slice", whole, emit.constant([0], "start"), end, axis, part="before")
