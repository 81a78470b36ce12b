"""The network of a module as data: its layers, what each reads and writes, and where the tensors come from.

A module's manifest has it beside the plan, which names only the choices. Reports draw it without the ONNX file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass as validated

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Layer, TensorType, ValueRef
from sartor.codegen.ir.packing import Packing
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.sizes.dims import symbols_in
from sartor.codegen.ir.thresholds import thresholds_of
from sartor.codegen.ir.variants.routine import Variant
from sartor.errors import UsageError

FORMAT = 1
NETWORK_INPUT = -1
"""Stands for the network where a value is said to come from a layer."""

_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)


@validated(frozen=True, config=_STRICT)
class StoredTensor:
    """A tensor and its form in memory.

    Attributes:
        type: ONNX's, as ``1x64x56x56xf32``.
        form: in memory: the schema of an activation, as ``cpu:f32@nchw16c``, and the type of a packed weight, as
            ``4x3x7x7x16xf32``.
        bytes: in memory.
    """

    type: str
    form: str
    bytes: int


@validated(frozen=True, config=_STRICT)
class NetworkLayer:
    """A layer.

    Attributes:
        name: as in the plan.
        nodes: names of the ONNX nodes that it computes.
        kind: of its root op, as ``LayerKind`` names it.
        task: key of its task, by which measurements are found.
        inputs: for each activation the position of the layer that writes it, or ``NETWORK_INPUT``, and the index of its
            result, or of the network's input.
        reads: each activation as this layer reads it, after a conversion.
        results: as it writes them.
        weights: in memory.
        changes: the sizes from which on it runs other code, as ``width=96``; empty for one code.
    """

    name: str
    nodes: tuple[str, ...]
    kind: str
    task: str
    inputs: tuple[tuple[int, int], ...]
    reads: tuple[StoredTensor, ...]
    results: tuple[StoredTensor, ...]
    weights: tuple[StoredTensor, ...]
    changes: str = ""

    @property
    def traffic(self) -> int:
        """Bytes of all that it reads and writes, each once."""
        return sum(tensor.bytes for tensor in (*self.reads, *self.results, *self.weights))


@validated(frozen=True, config=_STRICT)
class Network:
    """The layers in execution order.

    Attributes:
        layers: each reads results of earlier ones only.
        inputs: number of the network's inputs.
        outputs: for each output that is computed, the position of its layer, or ``NETWORK_INPUT``, and the index.
        format: version of this record.
    """

    layers: tuple[NetworkLayer, ...]
    inputs: int
    outputs: tuple[tuple[int, int], ...]
    format: int = FORMAT

    @model_validator(mode="after")
    def _reads_what_is_there(self) -> Network:
        for position, layer in enumerate(self.layers):
            if len(layer.inputs) != len(layer.reads):
                raise ValueError(f"'{layer.name}' reads {len(layer.reads)} tensors and names {len(layer.inputs)}")
            for ref in layer.inputs:
                self._check(ref, position)
        for ref in self.outputs:
            self._check(ref, len(self.layers))
        return self

    def _check(self, ref: tuple[int, int], end: int) -> None:
        source, index = ref
        if not NETWORK_INPUT <= source < end:
            raise ValueError(f"layer {source} is read before it is computed")
        if not 0 <= index < (self.inputs if source == NETWORK_INPUT else len(self.layers[source].results)):
            raise ValueError(f"layer {source} has no result {index}")

    @property
    def live_bytes(self) -> tuple[int, ...]:
        """Bytes of activations that exist while each layer runs: what it and later ones read, and what it writes.

        The network's inputs and weights are not counted. A tensor that the network returns stays to the end.
        """
        last = {ref: position for position, layer in enumerate(self.layers) for ref in layer.inputs}
        last |= dict.fromkeys(self.outputs, len(self.layers) - 1)
        changes = [0] * (len(self.layers) + 1)
        for position, layer in enumerate(self.layers):
            for index, result in enumerate(layer.results):
                changes[position] += result.bytes
                changes[last.get((position, index), position) + 1] -= result.bytes
        live, total = [], 0
        for change in changes[:-1]:
            total += change
            live.append(total)
        return tuple(live)

    def to_json(self) -> dict[str, Any]:
        """The network as JSON data, with keys in a fixed order."""
        data: dict[str, Any] = _ADAPTER.dump_python(self, mode="json")
        for layer in data["layers"]:
            # Few layers change their code.
            if not layer["changes"]:
                del layer["changes"]
        return data

    @staticmethod
    def from_json(data: object, source: str) -> Network:
        """Read a network from JSON data; ``source`` names it in errors.

        Raises:
            UsageError: if it is no network, or of another format.
        """
        if isinstance(data, dict) and data.get("format", FORMAT) != FORMAT:
            raise UsageError(f"{source} has the format {data['format']}, this version reads {FORMAT}; update sartor")
        try:
            return _ADAPTER.validate_python(data)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the top"
            raise UsageError(f"{source} is not valid: {first['msg']} at {where}") from None


_ADAPTER: TypeAdapter[Network] = TypeAdapter(Network)


def network_of(graph: LayerGraph, variants: Mapping[str, Variant], device: str) -> Network:
    """The record of a network.

    Args:
        graph: its layers.
        variants: by layer name; empty for the unsplit model, whose tensors have ONNX's layouts.
        device: of the network's inputs, and of all layers of the unsplit model.
    """
    positions = {layer.name: index for index, layer in enumerate(graph.layers)}

    def place(ref: ValueRef) -> tuple[int, int]:
        return (NETWORK_INPUT if ref.source is None else positions[ref.source]), ref.index

    symbols = symbols_in(dim for value in graph.inputs for dim in value.type.dims or ())
    changes = {threshold.layer: threshold.text for threshold in thresholds_of(graph, variants, symbols)}
    layers = tuple(
        replace(
            _layer(layer, tuple(map(place, layer.inputs)), variants.get(layer.name), device),
            changes=changes.get(layer.name, ""),
        )
        for layer in graph.layers
    )
    outputs = tuple(place(output.source) for output in graph.outputs if output.source is not None)
    return Network(layers, len(graph.inputs), outputs)


def _layer(layer: Layer, inputs: tuple[tuple[int, int], ...], variant: Variant | None, device: str) -> NetworkLayer:
    task = layer.task
    code = None if variant is None else variant.implementation
    reads = [Schema.plain(tensor, device) for tensor in task.inputs] if code is None else code.inputs
    writes = [Schema.plain(result, device) for result in task.results] if code is None else code.outputs
    packed = task.weights if code is None else tuple(map(Packing.type_of, code.packings, task.weights))
    return NetworkLayer(
        name=layer.name,
        nodes=layer.nodes,
        kind=task.kind.value,
        task=task.key,
        inputs=inputs,
        reads=tuple(map(_activation, task.inputs, reads)),
        results=tuple(map(_activation, task.results, writes)),
        weights=tuple(map(_weight, task.weights, packed)),
    )


def _weight(logical: TensorType, packed: TensorType) -> StoredTensor:
    return StoredTensor(_plain(logical), _plain(packed), packed.bytes)


def _activation(logical: TensorType, schema: Schema) -> StoredTensor:
    return StoredTensor(_plain(logical), str(schema), schema.physical(logical).bytes)


def _plain(tensor: TensorType) -> str:
    """``1x3xf32``."""
    return str(tensor).removeprefix("tensor<").removesuffix(">")
