"""Adapts: conversions of a tensor between two layouts, put on an edge whose ends disagree.

Every layout is a sequence of dimension parts, so an adapt splits the channels if either side is blocked, transposes,
and merges again; where the bytes are the same it is a reshape and costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.layer import TensorType
from sartor.codegen.layouts import PLAIN, image_layout, physical_type, same_bytes
from sartor.codegen.routine import Implementation

_CHANNEL = 1


@dataclass(frozen=True)
class Part:
    """One physical dimension: an ONNX axis, and which part of it (0 all or outer, 1 inner)."""

    axis: int
    level: int
    size: int


def adapt(logical: TensorType, source: str, target: str) -> Implementation:
    """Code that takes a tensor of ONNX type ``logical`` from layout ``source`` to ``target``.

    Raises:
        ValueError: if a layout does not fit the tensor.
    """
    before, after = physical_type(logical, source), physical_type(logical, target)
    if same_bytes(logical, source, target):
        lines, result = _reshape(before, after)
    else:
        lines, result = _transpose(logical, source, target)
    body = "\n".join(
        [
            f"util.func public @layer(%arg0: {before}) -> {after} {{",
            *(f"  {line}" for line in lines),
            f"  util.return {result} : {after}",
            "}",
        ]
    )
    return Implementation(body, (source,), target, ())


def _reshape(before: TensorType, after: TensorType) -> tuple[list[str], str]:
    flat = TensorType((before.elements,), before.dtype)
    return [
        f"%flat = tensor.collapse_shape %arg0 [{list(range(len(before.shape)))}] : {before} into {flat}",
        f"%out = tensor.expand_shape %flat [{list(range(len(after.shape)))}] "
        f"output_shape {list(after.shape)} : {flat} into {after}",
    ], "%out"


def _transpose(logical: TensorType, source: str, target: str) -> tuple[list[str], str]:
    blocks = [each for each in (image_layout(source).block, image_layout(target).block) if each]
    block = min(blocks, default=None)
    if any(each % (block or 1) for each in blocks):
        raise ValueError(f"layouts {source} and {target} have blocks that do not nest")
    start, end = _parts(logical, source, block), _parts(logical, target, block)
    split, joined = _type(start, logical), _type(end, logical)
    order = [start.index(part) for part in end]
    before, after = physical_type(logical, source), physical_type(logical, target)
    lines, value = _regroup("%arg0", before, split, "%split", expand=True)
    lines.append(f"%empty = tensor.empty() : {joined}")
    lines.append(f"%moved = linalg.transpose ins({value} : {split}) outs(%empty : {joined}) permutation = {order}")
    merged, result = _regroup("%moved", joined, after, "%out", expand=False)
    return lines + merged, result


def _parts(logical: TensorType, layout: str, block: int | None) -> list[Part]:
    """Physical dimensions of ``layout``, its channels split where ``block`` asks for it."""
    chosen = image_layout(layout)
    parts: list[Part] = []
    for axis in chosen.order:
        size = logical.shape[axis]
        if axis != _CHANNEL or block is None:
            parts.append(Part(axis, 0, size))
        elif chosen.block is None:
            parts += [Part(axis, 0, size // block), Part(axis, 1, block)]
        else:
            parts.append(Part(axis, 0, size // block))
    if chosen.block is not None and block is not None:
        parts.append(Part(_CHANNEL, 1, block))
    return parts


def _type(parts: list[Part], logical: TensorType) -> TensorType:
    return TensorType(tuple(part.size for part in parts), logical.dtype)


def _regroup(value: str, before: TensorType, after: TensorType, name: str, *, expand: bool) -> tuple[list[str], str]:
    """Split or merge adjacent dimensions, if the shapes differ at all."""
    if before == after:
        return [], value
    small, large = (before, after) if expand else (after, before)
    groups: list[list[int]] = []
    position = 0
    for size in small.shape:
        group, product = [position], large.shape[position]
        while product < size:
            position += 1
            group.append(position)
            product *= large.shape[position]
        groups.append(group)
        position += 1
    if expand:
        return [
            f"{name} = tensor.expand_shape {value} {groups} output_shape {list(after.shape)} : {before} into {after}"
        ], name
    return [f"{name} = tensor.collapse_shape {value} {groups} : {before} into {after}"], name


def needs_adapt(source: str, target: str) -> bool:
    """Whether two layouts on the ends of an edge differ."""
    return source != target and PLAIN not in (source, target)
