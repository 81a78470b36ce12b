"""Takes caches that grow out of a model's graph: what appends to them is then up to who runs it.

A cache becomes an input with all positions, those of the call included, which are the rows of an output. Both have
positions along their first axis, so that a cache of fewer positions is the beginning of one with more, and a call's
rows lie behind the earlier ones. What reads the cache has it as before, transposed; what asks for the length before the
call gets it, and values that are computed from that length follow from an input. Sizes that callers of a decoder choose
are bound, but for the number of positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from onnx import ModelProto, NodeProto, TensorShapeProto, ValueInfoProto

from sartor.errors import UnsupportedModelError, UsageError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor
from sartor.onnx_model.graphs.noise import noise_of
from sartor.onnx_model.states.call_sizes import (
    NO_STATE,
    CallFeeds,
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
from sartor.onnx_model.states.position_tables import TableBound, table_bounds
from sartor.runtime.driver.bound_input import BoundInput
from sartor.runtime.driver.cache import BEFORE, Cache
from sartor.settings.size_range import OpenShapes, SizeRange

POSITIONS = "positions"
"""The size of a cut model that is left open."""
_USUAL_MOST = 2048
# Tokens of a prompt that a call takes: enough for products to reuse weights, few enough to fill up the last call.
_PROMPT, _PROMPT_PARTS, _LEAST_PROMPT = 32, 4, 4
_TOKENS_RANK = 2


@dataclass(frozen=True)
class CutModel:
    """What a model is once its caches were taken out.

    Attributes:
        caches: the inputs and outputs that they are.
        shapes: of the inputs that have the number of positions.
        sources: what sizes were bound to, and why, in sentences.
        dtypes: numpy's names of the element types that caches have in the model, where they are kept in float32.
        prompt: shapes of inputs with which a call has several tokens in place of one; empty if it cannot.
        fixed: what the model takes by inputs that it no longer has.
        encoded: inputs that an encoder gave, of lengths that are left open.
    """

    caches: tuple[Cache, ...]
    shapes: OpenShapes
    sources: tuple[str, ...]
    prompt: OpenShapes = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    fixed: tuple[BoundInput, ...] = ()
    encoded: tuple[str, ...] = ()

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
    new, axis_of = sizes.new(model), {each.input: each.axis for each in growing}
    bounds = table_bounds(model, editor, CallFeeds(model, sizes, growing), new)
    most, source = _most(growing, given, bounds)
    _check_room(most, source, new)
    prompt = _prompt(model, growing, given, sizes, most)
    _cut(model, growing, editor)
    _forget_symbols(model)
    positions = SizeRange(new, most)
    shapes = {value.name: _bound(value, sizes, axis_of, positions) for value in inputs_of(model)}
    opened = {name: shape for name, shape in shapes.items() if any(isinstance(size, SizeRange) for size in shape)}
    # With the largest lengths of what an encoder gave, and small ones.
    lengths = [False, True] if sizes.encoded else [False]
    shapes_at = [partial(_shapes_at, shapes, positions, is_small=is_small) for is_small in lengths]
    count_positions(model, BEFORE, shapes_at, new, most)
    caches = tuple(Cache(each.input, each.output, each.axis) for each in growing)
    told = [f"{POSITIONS}={new}..{most}, {source}", *sizes.told]
    encoded = tuple(name for name in opened if is_encoded(name) and name not in axis_of)
    return CutModel(caches, opened, tuple(told), prompt, encoded=encoded)


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


def _prompt(
    model: ModelProto, growing: Sequence[Growing], given: OpenShapes, sizes: CallSizes, most: int
) -> OpenShapes:
    """Shapes of a call with several tokens, of a model that leaves their number open and takes nothing else."""
    count = min(_PROMPT, most // _PROMPT_PARTS)
    tokens = [value for value in inputs_of(model) if value.name not in {each.input for each in growing}]
    if count < _LEAST_PROMPT or not all(is_mask(value.name) or is_own(value.name) for value in tokens):
        return {}
    shapes = {value.name: dims_of(value) for value in tokens if is_own(value.name)}
    opened = sizes.free - sizes.said
    if not shapes or not all(len(dims) == _TOKENS_RANK and dims[1] in opened for dims in shapes.values()):
        return {}
    cache = next(value for value in inputs_of(model) if value.name == growing[0].input)
    lengths = [
        SizeRange(1, most) if axis == growing[0].axis else sizes.size(cache.name, dim)
        for axis, dim in enumerate(dims_of(cache))
    ]
    found = {name: (sizes.size(name, dims[0]), count) for name, dims in shapes.items()}
    return {**given, **found, cache.name: tuple(lengths)}


def _bound(
    value: ValueInfoProto, sizes: CallSizes, axis_of: Mapping[str, int], positions: SizeRange
) -> tuple[int | SizeRange, ...]:
    """Bind the dimensions of an input, but for the number of positions, and the length of what an encoder gave."""
    axis, found = axis_of.get(value.name), list[tuple[int | str, int | SizeRange]]()
    for index, dim in enumerate(dims_of(value)):
        if index == axis or (axis is None and isinstance(dim, str) and sizes.is_total(dim)):
            found.append((POSITIONS, positions))
        elif axis is None and dim in sizes.encoded:
            found.append((sizes.joined.get(str(dim), dim), sizes.encoded[str(dim)]))
        else:
            size = sizes.size(value.name, dim)
            found.append((size, size))
    if axis is not None:
        found.insert(0, found.pop(axis))
    _set_dims(value, [dim for dim, _ in found])
    return tuple(size for _, size in found)


def _set_dims(value: ValueInfoProto, dims: Iterable[int | str]) -> None:
    shape = value.type.tensor_type.shape
    del shape.dim[:]
    for each in dims:
        known = {"dim_value": each} if isinstance(each, int) else {"dim_param": each}
        shape.dim.append(TensorShapeProto.Dimension(**known))


def _cut(model: ModelProto, growing: Sequence[Growing], editor: GraphEditor) -> None:
    """Take caches out."""
    graph, first, last, tokens = model.graph, list[NodeProto](), list[NodeProto](), tokens_of(model)
    names, dropped = dict[str, str](), set[str]()
    for each in growing:
        emit = Emitter(editor, _appending(each, editor))
        rank = editor.rank(each.input) or 0
        others = [axis for axis in range(rank) if axis != each.axis]
        back = [0 if axis == each.axis else others.index(axis) + 1 for axis in range(rank)]
        whole = emit("Transpose", each.input, part="cache", perm=back)
        before = _before(emit, whole, each, tokens)
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
                f"it, so that the module cannot keep it; {NO_STATE}"
            )
    return node


def _copied(node: NodeProto) -> NodeProto:
    found = NodeProto()
    found.CopyFrom(node)
    return found


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


def _forget_symbols(model: ModelProto) -> None:
    """Drop names of sizes, some of which are bound now, from values inside."""
    for value in (*model.graph.value_info, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.HasField("dim_param"):
                dim.Clear()


def _most(growing: Sequence[Growing], given: OpenShapes, bounds: Sequence[TableBound]) -> tuple[int, str]:
    """The most positions, and where the number comes from."""
    asked = {each.input: given[each.input][each.axis] for each in growing if each.input in given}
    for name, size in asked.items():
        if not isinstance(size, SizeRange) or size.multiple != 1:
            raise UsageError(
                f"--shape gives the cache '{name}' {size} positions, but it grows: give a range, as 1..512, or "
                f"{NO_STATE}"
            )
    mosts = {size.most for size in asked.values() if isinstance(size, SizeRange)}
    if len(mosts) > 1:
        raise UsageError(f"--shape gives caches different lengths: {sorted(mosts)}")
    known = sorted((each.most, each.table) for each in bounds if each.most is not None)
    if mosts:
        most = mosts.pop()
        if known and known[0][0] < most:
            raise UsageError(
                f"--shape gives caches {most} positions, and the table '{known[0][1]}' has rows for {known[0][0]}: "
                "give them a range up to that"
            )
        return most, "as given"
    if unknown := next((each.table for each in bounds if each.most is None), None):
        raise UnsupportedModelError(
            f"for how many positions the table '{unknown}' has rows cannot be told; give the cache "
            f"'{growing[0].input}' a range by --shape, or {NO_STATE}"
        )
    if known and (known[0][0] < _USUAL_MOST or not all(each.is_ample for each in bounds)):
        return known[0][0], f"as long as the table '{known[0][1]}'"
    return _USUAL_MOST, "the usual bound"


def _check_room(most: int, source: str, new: int) -> None:
    """Make sure that caches have room for a call, and for more.

    Raises:
        UsageError: if not for a call.
        UnsupportedModelError: if for no more.
    """
    if most < new:
        raise UsageError(
            f"a call has {new} positions, and caches have room for {max(0, most)}, {source}; change either by --shape"
        )
    if most == new:
        count = "one position" if new == 1 else f"the {new} positions of a call and no more"
        raise UnsupportedModelError(f"caches have room for {count}, {source}; {NO_STATE}")
