"""What a decoder gives behind one token of a part of a prompt: layers behind the last attention run for it alone.

Of a prompt nothing but the logits behind its last token is wanted, and layers behind the last attention compute a row
for each token by that token's row alone. The plan for tokens has code for one row of these layers. So they are taken
from that plan, and read the token's rows of what the plan for prompts computes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sartor.codegen.ir.layer import Layer, TensorType, ValueRef
from sartor.codegen.ir.schema import Schema
from sartor.codegen.linking.entry_writer import Writer
from sartor.codegen.linking.functions.entries import Entry, Port
from sartor.codegen.linking.functions.growing import LAST
from sartor.codegen.linking.pieces import Stitching
from sartor.codegen.linking.weights.parameters import Parameters

_OWN_VALUE = re.compile(r"%([vt]\d+)\b")
_DEFINED = re.compile(r"(%[\w$]+)")
_OUTSIDE = ""
"""Stands for what reads a value that the network gives: a cache, which has rows of all tokens."""


@dataclass(frozen=True)
class _Cut:
    """A value that the last layers read.

    Attributes:
        own: in the plan for tokens.
        other: in the plan for prompts.
        axis: along which the latter has the tokens.
    """

    own: Port
    other: Port
    axis: int


@dataclass(frozen=True)
class LastLayers:
    """Layers that compute what is behind a token from rows of its own.

    Attributes:
        layers: of the plan for tokens.
        cuts: what they read.
    """

    layers: tuple[Layer, ...]
    cuts: tuple[_Cut, ...]

    @property
    def names(self) -> frozenset[str]:
        """Those of the layers, in both plans."""
        return frozenset(layer.name for layer in self.layers)


def last_layers(tokens: Stitching, prompts: Stitching) -> LastLayers | None:
    """The layers behind which a plan for tokens and one for prompts compute the same for each token; None if the
    outputs do not follow from such layers.

    Args:
        tokens: the plan for one token, with one entry.
        prompts: that for several.
    """
    search = _Search(tokens, prompts)
    names = search.names()
    (entry,) = tokens.entries
    layers = tuple(layer for layer in entry.layers if layer.name in names)
    sources = {None if port.ref is None else port.ref.source for port in given_ports(tokens)}
    if not sources <= names or not any(layer.weights for layer in layers):
        return None
    cuts = search.cuts(layers)
    return None if cuts is None else LastLayers(layers, cuts)


def given_ports(stitching: Stitching) -> list[Port]:
    """The outputs that are no caches."""
    (entry,) = stitching.entries
    caches = {cache.output for cache in stitching.caches}
    return [port for index, port in enumerate(entry.outputs) if index not in caches]


class _Search:
    def __init__(self, tokens: Stitching, prompts: Stitching) -> None:
        self._stitchings = tokens, prompts
        (own,), (other,) = tokens.entries, prompts.entries
        self._entries = own, other
        self._layers = [{layer.name: layer for layer in entry.layers} for entry in self._entries]
        self._readers = [_readers(stitching) for stitching in self._stitchings]
        self._count = other.outputs[prompts.caches[0].output].logical.shape[0]

    def names(self) -> set[str]:
        """Of the layers, the last first."""
        last = set[str]()
        for layer in reversed(self._entries[0].layers):
            other = self._layers[1].get(layer.name)
            if other is not None and self._belongs(layer, other, last):
                last.add(layer.name)
        return last

    def _belongs(self, layer: Layer, other: Layer, last: set[str]) -> bool:
        """Whether a layer computes the same in both plans, row by row, and is read by such layers alone."""
        if layer.nodes != other.nodes or len(layer.inputs) != len(other.inputs):
            return False
        if any(readers.get(layer.name, {_OUTSIDE}) - last for readers in self._readers):
            return False
        pairs = [*zip(layer.task.inputs, other.task.inputs, strict=True)]
        pairs += zip(layer.task.results, other.task.results, strict=True)
        return all(self._axis(*pair) is not None for pair in pairs) and self._reads_alike(layer.name, last)

    def _reads_alike(self, name: str, last: set[str]) -> bool:
        """Whether the last layers read a layer's results at the same places in both plans."""
        return all(
            own == other or name not in (own.source, other.source)
            for reader in last
            for own, other in zip(*(layers[reader].inputs for layers in self._layers), strict=True)
        )

    def _axis(self, own: TensorType, other: TensorType) -> int | None:
        """The axis of a prompt's tokens, if that is all in which two types differ."""
        if own.open_dims or other.open_dims or (own.dtype, len(own.shape)) != (other.dtype, len(other.shape)):
            return None
        differing = [axis for axis, sizes in enumerate(zip(own.shape, other.shape, strict=True)) if len({*sizes}) > 1]
        if len(differing) != 1 or (own.shape[differing[0]], other.shape[differing[0]]) != (1, self._count):
            return None
        return differing[0]

    def cuts(self, layers: Sequence[Layer]) -> tuple[_Cut, ...] | None:
        """What layers read of others; None if a plan has that in another layout than ONNX's."""
        names, cuts = {layer.name for layer in layers}, dict[ValueRef, _Cut]()
        for layer in layers:
            other = self._layers[1][layer.name]
            for slot, (ref, at) in enumerate(zip(layer.inputs, other.inputs, strict=True)):
                if ref.source in names:
                    continue
                cut = self._cut(layer, other, slot)
                if cut is None or cuts.setdefault(ref, cut).other.ref != at:
                    return None
        return tuple(cuts.values())

    def _cut(self, layer: Layer, other: Layer, slot: int) -> _Cut | None:
        tokens, prompts = self._stitchings
        own, whole = layer.task.inputs[slot], other.task.inputs[slot]
        read, axis = tokens.pieces[layer.name].implementation.inputs[slot], self._axis(own, whole)
        plain, ref = Schema.plain(own, read.device), other.inputs[slot]
        given = Schema.plain(whole, read.device)
        if ref.source is not None:
            given = prompts.pieces[ref.source].implementation.outputs[ref.index]
        if axis is None or read != plain or given != Schema.plain(whole, read.device):
            return None
        name = f"{layer.name}:{slot}"
        return _Cut(Port(name, layer.inputs[slot], own, plain), Port(name, ref, whole, given), axis)


def _readers(stitching: Stitching) -> Mapping[str, set[str]]:
    """The layers that read each layer's results."""
    (entry,), readers = stitching.entries, defaultdict[str, set[str]](set)
    for layer in entry.layers:
        for ref in layer.inputs:
            readers[ref.source or ""].add(layer.name)
    for cache in stitching.caches:
        if (source := entry.outputs[cache.output].ref) is not None:
            readers[source.source or ""].add(_OUTSIDE)
    for port in given_ports(stitching):
        readers[port.ref.source or "" if port.ref else ""] |= set()
    return readers


@dataclass(frozen=True)
class WrittenLast:
    """What a function computes that gives what is behind one token.

    Attributes:
        entry: what it takes and gives.
        lines: of its body, which know the first argument as ``%t0``, and so on, and the token's number as ``LAST``.
        returned: values of the results.
        code: what it calls, by name.
    """

    entry: Entry
    lines: tuple[str, ...]
    returned: tuple[str, ...]
    code: Mapping[str, str]


def written_last(
    name: str, last: LastLayers, tokens: Stitching, prompts: Stitching, parameters: Parameters
) -> WrittenLast:
    """Write the function that takes a part of a prompt, and gives what is behind one of its tokens.

    Args:
        name: of the function.
        last: the layers that run for that token alone.
        tokens: the plan that they are from.
        prompts: the plan of the others.
        parameters: collects the packed weights.
    """
    (own,), (other,) = tokens.entries, prompts.entries
    caches = [cache.output for cache in prompts.caches]
    head = replace(
        other,
        layers=tuple(layer for layer in other.layers if layer.name not in last.names),
        outputs=(*(other.outputs[index] for index in caches), *(cut.other for cut in last.cuts)),
    )
    tail = replace(own, layers=last.layers, inputs=tuple(cut.own for cut in last.cuts), outputs=(*given_ports(tokens),))
    first, second = Writer(prompts, parameters), Writer(tokens, parameters)
    before, behind = first.entry(head), second.entry(tail)
    known = {_defined(line) for line in before.lines}
    lines = [*before.lines, *_rows(last.cuts, before.returned[len(caches) :])]
    lines += (line for line in map(_renamed, behind.lines) if _defined(line) not in known)
    rows, given = dict(zip(caches, before.returned, strict=False)), map(_renamed, behind.returned)
    ports = iter(given_ports(tokens))
    outputs = tuple(port if index in rows else next(ports) for index, port in enumerate(other.outputs))
    returned = tuple(rows[index] if index in rows else next(given) for index in range(len(outputs)))
    entry = replace(other, name=name, outputs=outputs)
    return WrittenLast(entry, tuple(lines), returned, first.code | second.code)


def _defined(line: str) -> str:
    """The value that a line defines."""
    value = _DEFINED.match(line)
    if value is None:
        raise ValueError(f"a line defines no value: {line}")
    return value[1]


def _renamed(text: str) -> str:
    """Text with other names for values that both plans may have; those of weights are the module's."""
    return _OWN_VALUE.sub(r"%last_\1", text)


def _rows(cuts: Sequence[_Cut], values: Sequence[str]) -> Iterator[str]:
    """Lines with a token's rows of values, as the arguments of the last layers."""
    yield f"%last_index = arith.index_cast {LAST} : i64 to index"
    yield "%last_none = arith.constant 0 : index"
    for size in sorted({size for cut in cuts for size in cut.own.logical.shape}):
        yield f"%last_size{size} = arith.constant {size} : index"
    for number, (cut, value) in enumerate(zip(cuts, values, strict=True)):
        shape = cut.own.type.shape
        begins = ", ".join("%last_index" if axis == cut.axis else "%last_none" for axis in range(len(shape)))
        sizes = ", ".join(f"%last_size{size}" for size in shape)
        types = f"{cut.other.type} -> {cut.own.type}"
        yield f"%last_t{number} = flow.tensor.slice {value}[{begins} for {sizes}] : {types}"
