"""What a decoder whose caches grow leaves open: the number of positions, and the length of what an encoder gave.

Sizes that callers choose are bound, but for these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from onnx import ModelProto, TensorShapeProto, ValueInfoProto

from sartor.errors import UnsupportedModelError, UsageError
from sartor.onnx_model.graphs.graph import GraphEditor
from sartor.onnx_model.states.call_sizes import NO_STATE, CallFeeds, CallSizes, dims_of
from sartor.onnx_model.states.grown_caches import Growing
from sartor.onnx_model.states.position_tables import TableBound, table_bounds
from sartor.settings.size_range import OpenShapes, SizeRange

POSITIONS = "positions"
"""The size that is left open: the number of positions with those of the call."""
_USUAL_MOST = 2048


def most_positions(
    model: ModelProto,
    editor: GraphEditor,
    growing: Sequence[Growing],
    given: OpenShapes,
    sizes: CallSizes,
    *,
    are_before: bool = False,
) -> tuple[int, str]:
    """The most positions that caches have room for, those of the last call included, and where the number comes from.

    Args:
        model: as it was read.
        editor: of its graph.
        growing: its caches.
        given: shapes of inputs that the user gives, in which the length of a cache is a range.
        sizes: of its inputs.
        are_before: whether a given cache has the positions before a call alone, as callers pass it.

    Raises:
        UsageError: if there is no room for a call, or the shapes do not fit.
        UnsupportedModelError: if there is room for one call alone, or it cannot be told for how many.
    """
    new = sizes.new(model)
    bounds = table_bounds(model, editor, CallFeeds(model, sizes, growing), new)
    most, source = _most(growing, given, bounds, new if are_before else 0)
    _check_room(most, source, new)
    return most, source


def opened_shapes(shapes: OpenShapes) -> OpenShapes:
    """Those with a size that is left open."""
    return {name: shape for name, shape in shapes.items() if any(isinstance(size, SizeRange) for size in shape)}


def bound_dims(
    value: ValueInfoProto, sizes: CallSizes, axis_of: Mapping[str, int], positions: SizeRange
) -> tuple[int | SizeRange, ...]:
    """Bind the dimensions of an input, but for the number of positions, and the length of what an encoder gave.

    Args:
        value: the input; its dimensions are written.
        sizes: of the model's inputs.
        axis_of: where caches have their positions, which becomes the first axis.
        positions: how many there may be.

    Raises:
        UnsupportedModelError: if calls do not tell a size.
    """
    axis, dims_found = axis_of.get(value.name), list[tuple[int | str, int | SizeRange]]()
    for index, dim in enumerate(dims_of(value)):
        if index == axis or (axis is None and isinstance(dim, str) and sizes.is_total(dim)):
            dims_found.append((POSITIONS, positions))
        elif axis is None and dim in sizes.encoded:
            dims_found.append((sizes.joined.get(str(dim), dim), sizes.encoded[str(dim)]))
        else:
            size = sizes.size(value.name, dim)
            dims_found.append((size, size))
    if axis is not None:
        dims_found.insert(0, dims_found.pop(axis))
    set_dims(value, [dim for dim, _ in dims_found])
    return tuple(size for _, size in dims_found)


def set_dims(value: ValueInfoProto, dims: Iterable[int | str]) -> None:
    """Write the dimensions of an input: sizes, or names of symbols."""
    shape = value.type.tensor_type.shape
    del shape.dim[:]
    for dim in dims:
        known = {"dim_value": dim} if isinstance(dim, int) else {"dim_param": dim}
        shape.dim.append(TensorShapeProto.Dimension(**known))


def forget_symbols(model: ModelProto) -> None:
    """Drop names of sizes, some of which are bound now, from values inside."""
    for value in (*model.graph.value_info, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.HasField("dim_param"):
                dim.Clear()


def _most(growing: Sequence[Growing], given: OpenShapes, bounds: Sequence[TableBound], own: int) -> tuple[int, str]:
    """The most positions, and where the number comes from; given caches have ``own`` less."""
    asked = {growth.input: given[growth.input][growth.axis] for growth in growing if growth.input in given}
    for name, size in asked.items():
        if not isinstance(size, SizeRange) or size.multiple != 1:
            raise UsageError(
                f"--shape gives the cache '{name}' {size} positions, but it grows: give a range, as 1..512, or "
                f"{NO_STATE}"
            )
    mosts = {size.most for size in asked.values() if isinstance(size, SizeRange)}
    if len(mosts) > 1:
        raise UsageError(f"--shape gives caches different lengths: {sorted(mosts)}")
    known = sorted((bound.most, bound.table) for bound in bounds if bound.most is not None)
    if mosts:
        most = mosts.pop() + own
        if known and known[0][0] < most:
            raise UsageError(
                f"--shape gives caches {most - own} positions{' before a call' if own else ''}, and the table "
                f"'{known[0][1]}' has rows for {known[0][0] - own}: give them a range up to that"
            )
        return most, "as given"
    if unknown := next((bound.table for bound in bounds if bound.most is None), None):
        raise UnsupportedModelError(
            f"for how many positions the table '{unknown}' has rows cannot be told; give the cache "
            f"'{growing[0].input}' a range by --shape, or {NO_STATE}"
        )
    if known and (known[0][0] < _USUAL_MOST or not all(bound.is_ample for bound in bounds)):
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
