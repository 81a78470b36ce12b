"""Builder of random models: a node is added only if ONNX's shape inference accepts its operands."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper

Array = NDArray[Any]
_Item = TypeVar("_Item")

MOST_ELEMENTS = 1 << 13
"""Largest number of elements of a value. Small values compile and run fast and reveal the same defects."""

MICROSOFT = "com.microsoft"
SIZES = (1, 1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 16, 17, 24, 31, 32, 33)
"""Sizes of dimensions: ones, primes, multiples of vector lengths, and such multiples plus or minus one."""

_SHARED, _FRESH_INPUT, _UNREAD = 0.2, 0.1, 0.7
_LATEST = 4
_DTYPES = {
    name: int(helper.np_dtype_to_tensor_dtype(np.dtype(name)))
    for name in ("float32", "float16", "int8", "uint8", "int16", "int32", "int64", "bool")
}


class UnfitError(Exception):
    """An operator does not fit the values drawn for it."""


@dataclass(frozen=True)
class Value:
    """A tensor of the model.

    Attributes:
        name: name in the model.
        shape: static shape.
        dtype: numpy's name of the element type.
        exact: whether it is computed without rounding. Discontinuous operators take exact operands only, because a
            rounding difference in an operand could change their result.
        array: the elements of an initialiser, None for other values.
        constant: whether it is independent of all inputs.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    exact: bool = False
    array: Array | None = None
    constant: bool = False

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def is_real(self) -> bool:
        """Whether it holds floating-point numbers."""
        return self.dtype.startswith("float")

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def type(self) -> TypeProto:
        """The type as an ONNX message."""
        return helper.make_tensor_type_proto(_DTYPES[self.dtype], self.shape)


class Graph:
    """Nodes, weights and inputs of a random model.

    Args:
        random: source of all random choices.
        opset: version of ONNX's operators.
        real: numpy's name of the floating-point type.
        prefix: prefix of all names.
    """

    def __init__(self, random: np.random.Generator, opset: int, real: str = "float32", prefix: str = "") -> None:
        self.random = random
        self.opset = opset
        self.real = real
        self.smooth = True
        """Whether the model has no discontinuous operators."""
        self._prefix = prefix
        self._values: list[Value] = []
        self._inputs: list[Value] = []
        self._constants: dict[str, Value] = {}
        self._nodes: list[NodeProto] = []
        self._reads: Counter[str] = Counter()
        self._domains: set[str] = set()

    def chance(self, probability: float) -> bool:
        """Return True with the given probability."""
        return bool(self.random.random() < probability)

    def one_of(self, items: Sequence[_Item]) -> _Item:
        """Return a random item.

        Raises:
            UnfitError: if there are no items.
        """
        if not items:
            raise UnfitError
        return items[int(self.random.integers(len(items)))]

    def integer(self, low: int, high: int) -> int:
        """Return a random integer from ``low`` to ``high``, both included.

        Raises:
            UnfitError: if ``low`` exceeds ``high``.
        """
        if low > high:
            raise UnfitError
        return int(self.random.integers(low, high, endpoint=True))

    def size(self) -> int:
        """Return a random size of a dimension."""
        return self.one_of(SIZES)

    def axis(self, value: Value, *, first: int = 0) -> int:
        """Return a random axis of a value, non-negative or negative."""
        axis = self.integer(first, value.rank - 1)
        return axis - value.rank if self.chance(0.4) else axis

    def input(self, shape: Sequence[int], dtype: str = "") -> Value:
        """Add an input to the model and return it."""
        value = Value(f"{self._prefix}x{len(self._inputs)}", tuple(shape), dtype or self.real, exact=True)
        self._inputs.append(value)
        self._values.append(value)
        return value

    def pick(self, *ranks: int, dtypes: Sequence[str] = (), exact: bool = False) -> Value:
        """Return a random value of the model; unread values and recent values are preferred.

        Args:
            ranks: allowed ranks; any if empty.
            dtypes: allowed element types; by default the floating-point type.
            exact: whether the value must be exact.

        Raises:
            UnfitError: if no value fits.
        """
        wanted = dtypes or (self.real,)
        fit = [
            value
            for value in self._values
            if (not ranks or value.rank in ranks) and value.dtype in wanted and (value.exact or not exact)
        ]
        unread = [each for each in fit if not self._reads[each.name]]
        if unread and self.chance(_UNREAD):
            return self.one_of(unread)
        return self.one_of(fit[-_LATEST:] if self.chance(_UNREAD) else fit)

    def image(self, *ranks: int) -> Value:
        """Return a floating-point value of one of the given ranks, or a new input.

        Raises:
            UnfitError: as ``pick``.
        """
        if self.chance(_FRESH_INPUT):
            return self.input(self.shape(self.one_of(ranks)))
        return self.pick(*ranks)

    def shape(self, rank: int) -> tuple[int, ...]:
        """Return a random shape of at most ``MOST_ELEMENTS`` elements; images have small batches."""
        found = [self.size() for _ in range(rank)]
        if rank >= 3:
            found[0] = self.one_of((1, 1, 1, 2, 3, 5, 8))
        while math.prod(found) > MOST_ELEMENTS:
            found[int(np.argmax(found))] //= 2
        return tuple(found)

    def constant(self, array: Array) -> Value:
        """Add an initialiser and return it."""
        name = f"{self._prefix}w{len(self._constants)}"
        value = Value(name, array.shape, array.dtype.name, exact=True, array=array, constant=True)
        self._constants[name] = value
        return value

    def integers(self, *numbers: int) -> Value:
        """Add a vector of 64-bit integers, such as a shape or axes, and return it."""
        return self.constant(np.array(numbers, np.int64))

    def weight(self, *shape: int, scale: float = 1.0, low: float | None = None) -> Value:
        """Return a weight: a new one, or sometimes an existing one of the same shape.

        Args:
            shape: shape of the weight.
            scale: standard deviation of normal numbers, or width of the uniform range.
            low: lower end of the uniform range; None draws normal numbers.

        Raises:
            UnfitError: if the weight is too large.
        """
        if math.prod(shape) > 4 * MOST_ELEMENTS:
            raise UnfitError
        alike = [
            constant for constant in self._constants.values() if constant.shape == shape and constant.dtype == self.real
        ]
        if alike and low is None and self.chance(_SHARED):
            return self.one_of(alike)
        drawn = self.random.standard_normal(shape) * scale if low is None else low + scale * self.random.random(shape)
        return self.constant(np.asarray(drawn).astype(self.real))

    def op(self, kind: str, *operands: Value | None, **attributes: Any) -> Value:
        """Add a node with one result, and return the result.

        Args:
            kind: operator.
            operands: operands; None for an omitted one.
            attributes: attributes by name, and the keyword arguments of ``ops``: ``exact`` says that the operator does
                not round, ``like`` gives the result's type if ONNX does not infer it, ``domain`` is the operator's.

        Raises:
            UnfitError: if ONNX does not accept the operands, or the result is empty or too large.
        """
        return self.ops(kind, 1, *operands, **attributes)[0]

    def ops(
        self,
        kind: str,
        count: int,
        *operands: Value | None,
        exact: bool = False,
        like: Value | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> list[Value]:
        """Add a node with ``count`` results, and return them; otherwise as ``op``."""
        number = len(self._nodes)
        names = [f"{self._prefix}v{number}" + (f"_{index}" if count > 1 else "") for index in range(count)]
        read = [operand.name if operand else "" for operand in operands]
        node = helper.make_node(kind, read, names, name=f"{self._prefix}n{number}", domain=domain, **attributes)
        known = [operand for operand in operands if operand is not None]
        types = [like.type] * count if like is not None else self._inferred(node, known)
        # Integer operators never round; an operator that reads floats may, unless ``exact`` says otherwise.
        is_exact = all(each.exact for each in known) and (exact or not any(each.is_real for each in known))
        constant = all(each.constant for each in known)
        made = [_value(name, each, exact=is_exact, constant=constant) for name, each in zip(names, types, strict=True)]
        self._nodes.append(node)
        # Constant results never become outputs, because constant outputs may be refused.
        self._values += [each for each in made if not constant]
        self._reads.update(each.name for each in known)
        self._domains.add(domain)
        return made

    def _inferred(self, node: NodeProto, operands: Sequence[Value]) -> list[TypeProto]:
        data = {
            operand.name: numpy_helper.from_array(operand.array, operand.name)
            for operand in operands
            if operand.array is not None
        }
        types = {operand.name: operand.type for operand in operands}
        imports = [helper.make_opsetid("", self.opset)]
        try:
            schema = onnx.defs.get_schema(node.op_type, self.opset, node.domain)
            found = onnx.shape_inference.infer_node_outputs(schema, node, types, data, opset_imports=imports)
            return [found[name] for name in node.output]
        except (onnx.shape_inference.InferenceError, onnx.defs.SchemaError, KeyError, RuntimeError) as error:
            raise UnfitError(f"{node.op_type}: {error}") from None

    @property
    def node_count(self) -> int:
        """Number of nodes."""
        return len(self._nodes)

    def model(self) -> ModelProto:
        """Return the model; its outputs are all unread values and a few of the others.

        Raises:
            UnfitError: if the model has no outputs.
        """
        computed = {name for node in self._nodes for name in node.output}
        made = [value for value in self._values if value.name in computed]
        # Integers rounded from floats are no outputs: next to a tie they may differ by one without a defect.
        told = [each for each in made if each.is_real or each.exact]
        outputs = [each for each in told if not self._reads[each.name] or self.chance(0.1)]
        if not outputs:
            raise UnfitError
        graph = helper.make_graph(
            self._nodes,
            "fuzz",
            [helper.make_value_info(each.name, each.type) for each in self._inputs if self._reads[each.name]],
            [helper.make_value_info(output.name, output.type) for output in outputs],
            [self._tensor(constant) for constant in self._constants.values() if self._reads[constant.name]],
        )
        imports = [helper.make_opsetid("", self.opset)]
        imports += [helper.make_opsetid(domain, 1) for domain in sorted(self._domains) if domain]
        return helper.make_model(graph, opset_imports=imports, ir_version=10)

    @staticmethod
    def _tensor(value: Value) -> TensorProto:
        assert value.array is not None
        return numpy_helper.from_array(value.array, value.name)


def _value(name: str, type_: TypeProto, *, exact: bool, constant: bool) -> Value:
    """Return a value of an inferred type.

    Raises:
        UnfitError: if the shape is unknown, or the value is empty, too large or of an unsupported type.
    """
    tensor = type_.tensor_type
    if not tensor.HasField("shape") or not all(dim.HasField("dim_value") for dim in tensor.shape.dim):
        raise UnfitError
    shape = tuple(dim.dim_value for dim in tensor.shape.dim)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)).name
    if not 0 < math.prod(shape) <= MOST_ELEMENTS or min(shape, default=1) < 1 or dtype not in _DTYPES:
        raise UnfitError
    return Value(name, shape, dtype, exact=exact, constant=constant)
