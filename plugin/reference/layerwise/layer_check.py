"""Checks a module layer by layer: the user's own nodes, on the values that the module gave, define what comes next.

The user's file is computed node by node. Wherever the module gave a tensor of the file, that tensor is compared, and
the module's values stand for it from there on. So by induction a module is right if each tensor is, up to the network's
outputs, and no error is amplified by later layers. Which tensor a value stands for is a claim. A wrong one, a wrong
edge between layers or a wrong conversion shows as a wrong tensor, whatever prepared or linked the layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from onnx import ModelProto, NodeProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.tensor_data import to_array
from sartor.onnx_model.graphs.walk import describe_node, names_read
from sartor.onnx_model.rewrites.structure.sort_nodes import sort_nodes
from sartor.reference.layerwise.bounded import ROUNDOFF, Bounded, finite, half_roundoff, is_real
from sartor.reference.layerwise.node_bounds import NodeBounds
from sartor.reference.layerwise.operators import EXACT, Precision
from sartor.runtime.driver.signature import Array
from sartor.runtime.output_error import LAYER, output_scale

# Of results that are not rounded to steps, as fractions of their scale: as for single variants.
_USUAL = 1e-3
_EXACTLY = 16 * ROUNDOFF
# Of a layer few values are next to a tie. Where rounding may move half of a tensor, as behind several layers of which
# no result is known, almost any values would be right.
_MOST_OPEN, _FEW = 0.5, 4
_WIDE = 0.1


@dataclass(frozen=True)
class Claim:
    """A value of a module that stands for a tensor of the user's file.

    Attributes:
        layer: that computed it.
        step: of a quantised tensor whose numbers the module gives in place of the file's integers; 0 for others.
        zero: the integer that stands for zero.
        precision: of the layer.
    """

    layer: str
    step: float = 0.0
    zero: int = 0
    precision: Precision = EXACT


@dataclass(frozen=True)
class WrongTensor:
    """A tensor that is not what rounding allows.

    Attributes:
        layer: that computed it.
        tensor: its name in the user's file.
        node: that defines it there, in words.
        wrong: number of wrong elements.
        size: number of all elements.
        shapes: that of an output and the right one, in words, if they differ.
    """

    layer: str
    tensor: str
    node: str
    wrong: int
    size: int
    shapes: str = ""

    @property
    def told(self) -> str:
        """What is wrong, in words."""
        return self.shapes or f"{self.wrong} of {self.size} values differ by more than rounding allows"


@dataclass(frozen=True)
class CheckedLayers:
    """The result of a check.

    Attributes:
        layers: names of those whose tensors were compared, in the order of the file.
        ties: number of quantised elements that were rounded to the other side of a tie.
        wrong: tensors that are wrong, the first of the file first.
    """

    layers: tuple[str, ...] = ()
    ties: int = 0
    wrong: tuple[WrongTensor, ...] = ()

    def __add__(self, other: CheckedLayers) -> CheckedLayers:
        layers = tuple(dict.fromkeys((*self.layers, *other.layers)))
        return CheckedLayers(layers, self.ties + other.ties, self.wrong + other.wrong)


class LayerCheck:
    """Compares the tensors of a module's inference with what the user's nodes give.

    Args:
        model: the user's, with its weights. Its nodes are sorted, in place.
        claims: by name of the tensor.

    Raises:
        UnsupportedModelError: if an output of the model is claimed by no value, or nodes depend on themselves.
    """

    def __init__(self, model: ModelProto, claims: Mapping[str, Claim]) -> None:
        self._model = model
        self._claims = claims
        self._outputs = {output.name for output in model.graph.output}
        unclaimed = [value.name for value in model.graph.output if value.name not in claims]
        if unclaimed:
            raise UnsupportedModelError(f"no value of the module stands for the output '{unclaimed[0]}'")
        sort_nodes(model)
        self._bounds = NodeBounds(model)
        self._nodes = _needed(model)
        self._precisions = _precisions(self._nodes, claims)
        self._readers = _last_readers(self._nodes)

    def __call__(self, feeds: Mapping[str, Array], given: Mapping[str, Array]) -> CheckedLayers:
        """Check one inference.

        Args:
            feeds: an array for each input of the model.
            given: the module's value of each claimed tensor; of outputs in their shape, of others in any with the same
                elements. One that is no output and has another size is not compared: a module keeps tensors whose size
                depends on data in full length.

        Raises:
            UnsupportedModelError: if a tensor is of several layers together, whose rounding may move most of it.
            UnsupportedModelError, UsageError: if the reference does not run a node.
        """
        known = {name: Bounded(array) for name, array in feeds.items()}
        known |= {
            initializer.name: Bounded(to_array(initializer))
            for initializer in self._model.graph.initializer
            if initializer.name not in feeds
        }
        layers = self._passed(known, given)
        for index, node in enumerate(self._nodes):
            for name, right in self._bounds(node, known, self._precision(node)).items():
                claim = self._claims.get(name)
                if claim is None or (name not in self._outputs and given[name].size != right.value.size):
                    known[name] = right
                else:
                    checked, known[name] = self._compared(name, describe_node(node), right, given[name])
                    layers += checked
                    if not layers.wrong:
                        _check_decided(name, claim, right)
            for name in self._readers[index]:
                known.pop(name, None)
        return layers

    def _passed(self, known: Mapping[str, Bounded], given: Mapping[str, Array]) -> CheckedLayers:
        """The check of outputs that no node computes: inputs and weights, which a module returns as they are."""
        names = (value.name for value in self._model.graph.output if value.name in known)
        checks = (self._compared(name, "what is given", known[name], given[name])[0] for name in names)
        return sum(checks, CheckedLayers())

    def _compared(self, name: str, node: str, right: Bounded, given: Array) -> tuple[CheckedLayers, Bounded]:
        """The check of one tensor that a node in words defines, and the tensor by the module's values."""
        claim, size = self._claims[name], right.value.size
        if name in self._outputs and given.shape != right.value.shape:
            shapes = f"its shape is {list(given.shape)}, and {list(right.value.shape)} is right"
            wrong = WrongTensor(claim.layer, name, node, size, size, shapes)
            return CheckedLayers((claim.layer,), wrong=(wrong,)), right
        return _compared(name, node, claim, right, given)

    def _precision(self, node: NodeProto) -> Precision:
        return self._precisions.get(node.output[0], EXACT)


def _needed(model: ModelProto) -> list[NodeProto]:
    """The nodes that the outputs depend on, in order."""
    wanted = {value.name for value in model.graph.output}
    kept: list[NodeProto] = []
    for node in reversed(model.graph.node):
        if not wanted.isdisjoint(node.output):
            kept.append(node)
            wanted |= names_read(node)
    return kept[::-1]


def _last_readers(nodes: Sequence[NodeProto]) -> list[set[str]]:
    """For each node the tensors that no later one reads."""
    seen: set[str] = set()
    readers: list[set[str]] = []
    for node in reversed(nodes):
        read = names_read(node) | {name for name in node.output if name}
        readers.append(read - seen)
        seen |= read
    return readers[::-1]


def _precisions(nodes: Sequence[NodeProto], claims: Mapping[str, Claim]) -> dict[str, Precision]:
    """The precision of each node that a layer computes less exactly: all between its result and claimed tensors."""
    precisions: dict[str, Precision] = {}
    for node in reversed(nodes):
        own = [claims[name].precision for name in node.output if name in claims]
        own += [precisions[name] for name in node.output if name in precisions and name not in claims]
        joined = Precision(
            max((precision.growth for precision in own), default=1.0),
            max((precision.roundoff for precision in own), default=0.0),
        )
        if joined != EXACT:
            precisions[node.output[0]] = joined
            precisions |= {
                name: _coarser(joined, precisions.get(name, EXACT)) for name in names_read(node) if name not in claims
            }
    return precisions


def _coarser(one: Precision, other: Precision) -> Precision:
    return Precision(max(one.growth, other.growth), max(one.roundoff, other.roundoff))


def _compared(name: str, node: str, claim: Claim, right: Bounded, given: Array) -> tuple[CheckedLayers, Bounded]:
    """The check of one tensor that a node in words defines, and the tensor by the module's values."""
    value, lost = _as_tensor(given, claim, right.value)
    allowed = _allowed(claim, right, lost)
    apart = _apart(value, right.value)
    count = int(np.count_nonzero(~(apart <= allowed) | _outside(value, right, allowed)))
    wrong = WrongTensor(claim.layer, name, node, count, right.value.size)
    checked = CheckedLayers((claim.layer,), wrong=(wrong,) if count else ())
    if right.is_exact and not count:
        checked = replace(checked, ties=int(np.count_nonzero(apart > _least(right.value))))
    return checked, Bounded(value, lost if lost is not None and np.any(lost) else None, right.is_exact)


def _as_tensor(given: Array, claim: Claim, right: Array) -> tuple[Array, Array | None]:
    """The module's value in the tensor's type and shape, and what that loses of each element."""
    array = given.reshape(right.shape)
    if claim.step:
        whole = np.rint(array.astype(np.float64) / claim.step) + claim.zero
        limits = np.iinfo(right.dtype)
        # What is no number, or out of range, differs from any integer by more than a step.
        inside = np.clip(np.nan_to_num(whole), limits.min, limits.max).astype(right.dtype)
        off = np.abs(array - claim.step * (whole - claim.zero)) > _USUAL * claim.step
        return np.where(off | (inside != whole), _other(inside), inside), None
    if array.dtype == right.dtype or not is_real(right):
        is_raw = array.dtype.kind in "iu" and right.dtype.kind in "iu" and array.dtype.itemsize == right.dtype.itemsize
        return array.view(right.dtype) if is_raw else array.astype(right.dtype), None
    cast = array.astype(right.dtype)
    lost = np.abs(array.astype(np.float64) - cast.astype(np.float64)).astype(np.float32)
    return cast, finite(lost)


def _other(integers: Array) -> Array:
    """Integers that are far from the given ones."""
    return (integers.astype(np.int64) ^ (1 << (8 * integers.dtype.itemsize - 1))).astype(integers.dtype)


def _allowed(claim: Claim, right: Bounded, lost: Array | None) -> Array:
    """How far each element may be from the right one."""
    error = np.zeros(right.value.shape) if right.error is None else right.error.astype(np.float64)
    if lost is not None:
        error = error + lost
    if not is_real(right.value):
        return np.asarray(error)
    sizes = np.nan_to_num(np.abs(right.value.astype(np.float64)), posinf=0.0)
    error = error + 2 * (claim.precision.roundoff + half_roundoff(right.value)) * sizes
    if right.is_exact and not half_roundoff(right.value):
        return np.asarray(error + _EXACTLY * sizes)
    return np.asarray(np.maximum(error, _USUAL * output_scale(right.value, lenience=LAYER)))


def _check_decided(name: str, claim: Claim, right: Bounded) -> None:
    """Make sure that the bounds of a tensor tell right values from others; those of narrower types are the user's wish.

    Raises:
        UnsupportedModelError: if not.
    """
    if right.error is None or claim.precision != EXACT:
        return
    limit = 0.0 if right.span is not None else _WIDE * output_scale(right.value, lenience=LAYER)
    count = int(np.count_nonzero(right.error > limit))
    if count > max(_FEW, _MOST_OPEN * right.value.size):
        raise UnsupportedModelError(
            f"'{name}' is computed by layers whose own results are not in the file, and rounding in these may move "
            f"{count} of its {right.value.size} values"
        )


def _outside(value: Array, right: Bounded, allowed: Array) -> Array:
    """Whether an element next to a tie was rounded to neither side of it."""
    if right.span is None or right.error is None:
        return np.zeros(value.shape, np.bool_)
    slack = np.maximum(allowed - right.error, 0.0)
    least, most = right.span
    return np.asarray((value < least - slack) | (value > most + slack))


def _apart(value: Array, right: Array) -> Array:
    """The distances of elements; 0 for the same infinity or NaN in both."""
    if not is_real(right) and right.dtype.kind not in "iu":
        return np.where(value == right, 0.0, np.inf)
    wide, other = value.astype(np.float64), right.astype(np.float64)
    with np.errstate(invalid="ignore"):
        distance = np.abs(wide - other)
    same = (wide == other) | (np.isnan(wide) & np.isnan(other))
    return np.where(same, 0.0, np.where(np.isnan(distance), np.inf, distance))


def _least(right: Array) -> Array | float:
    """A distance below which elements are of one step."""
    return _EXACTLY * np.abs(right.astype(np.float64)) if is_real(right) else 0.0
