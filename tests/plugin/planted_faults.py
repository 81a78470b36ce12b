"""Faults that are planted in quantised networks, as a rewrite, a kernel or a linker may make them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import ModelProto, NodeProto, numpy_helper

from tests.plugin.onnx_model.builders import Array, node


def copy_of(model: ModelProto) -> ModelProto:
    """A copy to plant a fault in."""
    copy = ModelProto()
    copy.CopyFrom(model)
    return copy


def constant(model: ModelProto, name: str) -> Array:
    """The values of a weight."""
    return numpy_helper.to_array(
        next(initializer for initializer in model.graph.initializer if initializer.name == name)
    ).copy()


def _set(model: ModelProto, name: str, values: Array) -> str:
    """Give a weight other values under a new name, which is returned; others keep the old ones."""
    new = f"{name}_planted{len(model.graph.initializer)}"
    model.graph.initializer.append(numpy_helper.from_array(values, new))
    return new


def producer(model: ModelProto, name: str) -> NodeProto:
    """The node that computes a tensor."""
    return next(each for each in model.graph.node if name in each.output)


def convolution(model: ModelProto, name: str) -> NodeProto:
    """A convolution by its name."""
    return next(each for each in model.graph.node if each.name == name and each.op_type == "Conv")


def zero_point(model: ModelProto, name: str) -> None:
    """The zero point of a convolution's operand is off by one."""
    pair = producer(model, convolution(model, name).input[0])
    pair.input[2] = _set(model, pair.input[2], constant(model, pair.input[2]) + np.uint8(1))


def channel_scale(model: ModelProto, name: str) -> None:
    """The scale of one channel of a convolution's filters is 2% off."""
    pair = producer(model, convolution(model, name).input[1])
    scales = constant(model, pair.input[1])
    scales[1] *= np.float32(1.02)
    pair.input[1] = _set(model, pair.input[1], scales)


def swapped_channels(model: ModelProto, name: str) -> None:
    """Two channels of a convolution's filters are swapped."""
    pair = producer(model, convolution(model, name).input[1])
    stored = constant(model, pair.input[0])
    pair.input[0] = _set(model, pair.input[0], stored[[0, 2, 1, *range(3, len(stored))]])


def dropped_pair(model: ModelProto, name: str) -> None:
    """A convolution reads numbers that were not rounded."""
    conv = convolution(model, name)
    pair = producer(model, conv.input[0])
    conv.input[0] = producer(model, pair.input[0]).input[0]


def saturating_sums(model: ModelProto, name: str) -> None:
    """A pointwise convolution adds products of unsigned and signed bytes in pairs of 16 bits, which saturate, as
    vpmaddubsw does."""
    conv = convolution(model, name)
    pair, filters = producer(model, conv.input[0]), producer(model, conv.input[1])
    scale, zero = (constant(model, each) for each in pair.input[1:3])
    stored, steps = constant(model, filters.input[0]), constant(model, filters.input[1])
    channels = stored.shape[1]
    assert stored.shape[2:] == (1, 1)
    assert channels % 2 == 0
    unit = (float(scale) * steps.astype(np.float64)).reshape(-1, 1, 1).astype(np.float32)
    shift = (float(scale) * float(zero)) * np.ones((), np.float32)
    less = -float(zero) * unit[:, 0, 0] * stored.sum(axis=(1, 2, 3))
    bias = producer(model, conv.input[2])
    added = constant(model, bias.input[0]) * constant(model, bias.input[1]) + less
    limits = [_set(model, f"{name}_limit", np.float32(each) * unit) for each in (32767, -32768)]
    raw, sums = f"{name}_raw", list[str]()
    nodes = [node("Add", [conv.input[0], _set(model, f"{name}_shift", shift)], [raw], name=raw)]
    for first in range(0, channels, 2):
        own = f"{name}_{first}"
        ends = [_set(model, f"{own}_end", np.array([each], np.int64)) for each in (first, first + 2, 1)]
        weights = (stored[:, first : first + 2] * steps.reshape(-1, 1, 1, 1)).astype(np.float32)
        nodes += [
            node("Slice", [raw, ends[0], ends[1], ends[2]], [f"{own}_s"], name=f"{own}_s"),
            node("Conv", [f"{own}_s", _set(model, f"{own}_w", weights)], [f"{own}_c"], name=f"{own}_c"),
            node("Min", [f"{own}_c", limits[0]], [f"{own}_m"], name=f"{own}_m"),
            node("Max", [f"{own}_m", limits[1]], [f"{own}_x"], name=f"{own}_x"),
        ]
        sums.append(f"{own}_x")
    sums.append(_set(model, f"{name}_less", added.reshape(1, -1, 1, 1).astype(np.float32)))
    nodes.append(node("Sum", sums, list(conv.output), name=f"{name}_sum"))
    place = list(model.graph.node).index(conv)
    kept = [*model.graph.node[:place], *nodes, *model.graph.node[place + 1 :]]
    copies = [copied(each) for each in kept]
    del model.graph.node[:]
    model.graph.node.extend(copies)


def copied(each: NodeProto) -> NodeProto:
    """A copy of a node, which its graph may drop."""
    copy = NodeProto()
    copy.CopyFrom(each)
    return copy


Fault = Callable[[ModelProto, str], None]

FAULTS: dict[str, Fault] = {
    "zero point": zero_point,
    "channel's scale": channel_scale,
    "swapped channels": swapped_channels,
    "dropped pair": dropped_pair,
    "saturating sums": saturating_sums,
}
