"""Plans: which variant computes each layer. A plan is stored as JSON and suffices to build the same bytes again."""

from __future__ import annotations

import json
import re
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as validated

from sartor.codegen.ir.variants.renamed import renamed
from sartor.errors import UsageError
from sartor.publishing import written
from sartor.runtime.driver.bound_input import Number
from sartor.runtime.files.regular_files import read_json

FORMAT = 5
# Plans of the largest networks have some megabytes.
_MOST_BYTES = 64 << 20
_MOST_OPERATIONS = 1 << 63
_RANGE_NAME = re.compile(r".*:[0-9]{1,9}", re.DOTALL)
# Normal numbers of float32, and integers of 8 bits.
_LEAST_SCALE, _LARGEST_SCALE = 2.0**-126, 2.0**128
_LEAST_ZERO, _LARGEST_ZERO = -128, 255
# As `equalised_products.MOST_EXPONENT`, which lies in a room above this one.
_MOST_EXPONENT = 16
_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)


@validated(frozen=True, config=_STRICT)
class LayerChoice:
    """One layer of a plan.

    Attributes:
        layer: its name.
        nodes: names of the ONNX nodes that it computes.
        task: key of the task.
        variant: descriptor of the variant, by the name that its routine has now.
        seconds: predicted time without adapts; None if it was not measured.
        in_place: time within the whole network, fitted to the network's; None if it was not measured.
        operations: number of operations, a multiply-add counting as two; 0 unless it is a convolution, product or
            window.
        symbol: the prefix of its dispatches' names in the module.
        dtype: element type in which it computes.
        error: relative error of the network's outputs if only this layer is computed in a narrower type than the
            model's; None if the type is not narrower, or the error is unknown.
        saved: predicted seconds that the narrower type saves against the layer's best variant in the model's type,
            without conversions; None as for ``error``.
    """

    layer: str
    nodes: tuple[str, ...]
    task: str
    variant: Annotated[str, AfterValidator(renamed)]
    symbol: str
    seconds: float | None
    in_place: float | None
    operations: int
    dtype: str
    error: float | None
    saved: float | None

    @property
    def rate(self) -> float | None:
        """Predicted operations per second; None if time or operations are unknown."""
        # A file may have any whole number.
        operations = min(self.operations, _MOST_OPERATIONS)
        return operations / self.seconds if operations and self.seconds else None


@validated(frozen=True, config=_STRICT)
class AdaptChoice:
    """A conversion on an edge.

    Attributes:
        producer, consumer: names of layers, or network values as ``input:x`` and ``output:y``.
        slot: index of the consumer's activation.
        source, target: schemas before and after.
        symbol: the prefix of its dispatches' names in the module.
        seconds: predicted time; None if it was not measured.
        in_place: time within the whole network, fitted to the network's; None if it was not measured.
    """

    producer: str
    consumer: str
    slot: int
    source: str
    target: str
    symbol: str
    seconds: float | None
    in_place: float | None

    @property
    def is_transfer(self) -> bool:
        """Whether the tensor goes to another device, where it may be converted."""
        return self.source.partition(":")[0] != self.target.partition(":")[0]


@validated(frozen=True, config=_STRICT)
class ComparedPlan:
    """A plan that ran as a whole network beside the one that was shipped.

    Attributes:
        predicted: seconds of one inference by the cost tables, with times in networks; None if it was not predicted.
        measured: seconds of one inference; None if it did not run, or its outputs were wrong.
        changes: the variant of each layer that is another than in the shipped plan.
    """

    predicted: float | None
    measured: float | None
    changes: dict[str, str]


def _known_ranges(ranges: dict[str, tuple[float, int]]) -> dict[str, tuple[float, int]]:
    for name, (scale, zero) in ranges.items():
        if not _RANGE_NAME.fullmatch(name):
            raise ValueError(f"'{name}' is not a layer and the number of its result")
        if not (_LEAST_SCALE <= scale <= _LARGEST_SCALE and _LEAST_ZERO <= zero <= _LARGEST_ZERO):
            raise ValueError(f"'{name}' has the scale {scale} and zero point {zero}, which are not those of 8 bits")
    return ranges


@validated(frozen=True, config=_STRICT)
class Plan:
    """The choices from which one module is built.

    Attributes:
        model_sha256: hash of the prepared model; the plan is valid for no other model.
        target: device and architecture.
        threads: number of threads for which it was tuned.
        unsplit: whether IREE's stock lowering compiles the whole model as one, without layers.
        layers: in execution order.
        adapts: conversions, in the order of the network's edges.
        objective: what the solver minimised.
        solver: name of the solver that selected it.
        optimal: whether no other plan within the limits is better by the cost tables that it was selected by.
        gap: upper bound of the relative distance from the optimum; 0 if optimal, None if unknown.
        predicted: seconds of one inference by the cost tables.
        foreseen: the same by times of layers alone, as it was before any layer was timed in the network; None if none
            was.
        measured: seconds of one inference of the whole module, with ``workers`` threads if that is known.
        baseline: seconds of the unsplit model, measured in the same run, or with fewer threads if that is less.
        stock_estimate: seconds that the unsplit model is expected to take by its layers, if it was not built, as that
            is far slower than the plan.
        memory: bytes of weights, activations, inputs and outputs of the whole module, None if not measured.
        first: seconds of loading the module from its file and the first inference, None if not measured.
        peak: the machine's most f32 operations per second with as many threads; None if not measured.
        versions: of Sartor and IREE.
        ranges: scale and zero point of quantised values, by ``layer:result``; a network input has no layer.
        bound: values of the model's inputs that were fixed, by name, as the user gave them.
        workers: number of threads with which the module runs fastest, if that is not the one it was tuned for.
        by_threads: number of threads and seconds of one inference of the whole module, if that was measured.
        compared: the other plans with layers that ran, in the order of their selection.
        exponents: powers of two by which channels of tensors are divided before products, by ONNX tensor.
        compensated: identifies the samples on which errors of weights in blocks of 4 bits were compensated; empty
            if weights are rounded to nearest.
        rows: of the shortest table that all elements of an input index, by the input's name.
        basis: what its predicted times come from, in words, if they were not measured on the machine that compiled it.
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
    ranges: Annotated[dict[str, tuple[float, int]], AfterValidator(_known_ranges)] = field(default_factory=dict)
    bound: dict[str, tuple[Number, ...]] = field(default_factory=dict)
    workers: Annotated[int, Field(ge=1)] | None = None
    by_threads: tuple[tuple[int, float], ...] = ()
    compared: tuple[ComparedPlan, ...] = ()
    exponents: dict[str, tuple[Annotated[int, Field(ge=-_MOST_EXPONENT, le=_MOST_EXPONENT)], ...]] = field(
        default_factory=dict
    )
    compensated: str = ""
    rows: dict[str, Annotated[int, Field(ge=1)]] = field(default_factory=dict)
    basis: str = ""
    foreseen: float | None = None
    stock_estimate: float | None = None
    format: int = FORMAT

    def unmeasured(self) -> Plan:
        """The plan without what is measured by running its module."""
        layers = tuple(replace(layer, in_place=None) for layer in self.layers)
        adapts = tuple(replace(adapt, in_place=None) for adapt in self.adapts)
        unknown = replace(self, measured=None, baseline=None, memory=None, first=None, by_threads=(), compared=())
        return replace(unknown, layers=layers, adapts=adapts, foreseen=None, stock_estimate=None)

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON data, with keys in a fixed order."""
        data: dict[str, Any] = _ADAPTER.dump_python(self, mode="json")
        return data

    def text(self) -> str:
        """The plan as indented JSON."""
        return json.dumps(self.to_json(), indent=1, sort_keys=True) + "\n"

    def save(self, path: Path) -> None:
        """Write the plan as indented JSON.

        Raises:
            UsageError: if the file cannot be written.
        """
        with written(path) as new:
            new.write_text(self.text(), encoding="utf-8")

    @staticmethod
    def from_json(data: object, source: str) -> Plan:
        """Read a plan from JSON data; ``source`` names it in errors.

        Raises:
            UsageError: if it is not a plan, or has another format.
        """
        if isinstance(data, dict) and "plans" in data:
            raise UsageError(f"{source} holds the plans of a file with several; one plan was expected")
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
            UsageError: if the file cannot be read or is not a plan.
        """
        try:
            data = read_json(path, _MOST_BYTES)
        except OSError as error:
            raise UsageError(f"the plan '{path}' cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise UsageError(f"the plan '{path}' is not JSON: {error}") from None
        return Plan.from_json(data, f"'{path}'")


_ADAPTER: TypeAdapter[Plan] = TypeAdapter(Plan)
