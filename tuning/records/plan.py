"""Plans: which variant computes each layer. Readable as JSON, and enough to build the same bytes again."""

from __future__ import annotations

import json
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as validated

from sartor.errors import UsageError

FORMAT = 5
_STRICT = ConfigDict(extra="forbid")


@validated(frozen=True, config=_STRICT)
class LayerChoice:
    """One layer of a plan.

    Attributes:
        layer: its name.
        nodes: ONNX nodes computed in it.
        task: key of what it computes.
        variant: descriptor of how.
        seconds: predicted time, adapts aside; None where nothing was measured.
        in_place: time within the whole network; None where that was not measured.
        operations: that it asks for, a multiply-add being two; 0 for what is no convolution, product or window.
        symbol: with which its dispatches in the module begin.
        dtype: element type that it computes in.
        error: relative error of the network's outputs if only this layer is computed in a narrower type than its own;
            None where it is not, or nobody knows.
        saved: seconds that this saves by the tables against the layer's best variant in its own type, conversions
            aside; likewise.
    """

    layer: str
    nodes: tuple[str, ...]
    task: str
    variant: str
    symbol: str
    seconds: float | None
    in_place: float | None
    operations: int
    dtype: str
    error: float | None
    saved: float | None

    @property
    def rate(self) -> float | None:
        """Predicted operations per second; None where nothing was measured or counted."""
        return self.operations / self.seconds if self.operations and self.seconds else None


@validated(frozen=True, config=_STRICT)
class AdaptChoice:
    """A conversion on an edge. ``producer`` and ``consumer`` are layers, or network values as ``input:x``."""

    producer: str
    consumer: str
    slot: int
    source: str
    target: str
    symbol: str
    seconds: float | None
    in_place: float | None


@validated(frozen=True, config=_STRICT)
class Plan:
    """What one module is built from.

    Attributes:
        model_sha256: hash of the prepared model; a plan fits no other.
        target: device and architecture.
        threads: what it was tuned for.
        unsplit: the whole model by IREE's stock lowering, no layer apart from the others.
        layers: in execution order.
        adapts: conversions, in the order they are met.
        objective: what the solver minimised.
        solver: which one chose.
        optimal: whether no other combination within the limits is better by the tables that it was selected by.
        gap: by how much, relatively, another may be better; 0 if none is, None where nothing is known.
        predicted: seconds of one inference by the tables.
        measured: seconds of one inference of the whole module.
        baseline: seconds of the unsplit model, measured in the same run.
        memory: bytes of weights, activations, inputs and outputs of the whole module, None where not measured.
        first: seconds that loading the module from its file and the first inference take, None where not measured.
        peak: f32 operations per second that the machine does at most, with as many threads; None if not measured.
        versions: of Sartor and IREE.
        ranges: scale and zero point of what is quantised, by ``layer:result``; a network input has no layer.
        format: version of this record.
    """

    model_sha256: str
    target: str
    threads: int
    unsplit: bool
    layers: tuple[LayerChoice, ...]
    adapts: tuple[AdaptChoice, ...]
    objective: str
    solver: str
    optimal: bool
    gap: float | None
    predicted: float | None
    measured: float | None
    baseline: float | None
    memory: int | None
    first: float | None
    peak: float | None
    versions: dict[str, str]
    ranges: dict[str, tuple[float, int]] = field(default_factory=dict)
    format: int = FORMAT

    def unmeasured(self) -> Plan:
        """The plan as it was before its module was run."""
        layers = tuple(replace(each, in_place=None) for each in self.layers)
        adapts = tuple(replace(each, in_place=None) for each in self.adapts)
        return replace(self, layers=layers, adapts=adapts, measured=None, baseline=None, memory=None, first=None)

    def to_json(self) -> dict[str, Any]:
        """As JSON data, keys in a fixed order."""
        data: dict[str, Any] = _ADAPTER.dump_python(self, mode="json")
        return data

    def save(self, path: Path) -> None:
        """Write as indented JSON.

        Raises:
            UsageError: if the file cannot be written.
        """
        try:
            path.write_text(json.dumps(self.to_json(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"the plan cannot be written to '{path}': {error.strerror}") from None

    @staticmethod
    def from_json(data: object, source: str) -> Plan:
        """Read a plan; ``source`` names it in errors.

        Raises:
            UsageError: if it is no plan, or one of another format.
        """
        if isinstance(data, dict) and data.get("format", FORMAT) != FORMAT:
            raise UsageError(f"{source} is a plan of format {data['format']}, this version reads {FORMAT}")
        try:
            return _ADAPTER.validate_python(data)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the top"
            raise UsageError(f"{source} is no plan: {first['msg']} at {where}") from None

    @staticmethod
    def load(path: Path) -> Plan:
        """Read a plan from a JSON file.

        Raises:
            UsageError: if the file cannot be read or is no plan.
        """
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise UsageError(f"the plan '{path}' cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise UsageError(f"the plan '{path}' is not JSON: {error}") from None
        return Plan.from_json(data, f"'{path}'")


_ADAPTER: TypeAdapter[Plan] = TypeAdapter(Plan)
