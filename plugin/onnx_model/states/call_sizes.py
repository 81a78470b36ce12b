"""What the sizes of a decoder's inputs are whose caches grow, and what its inputs hold after some number of positions.

Sizes that say how many sequences and positions a call has need not be given, nor the length of what an encoder gave,
which is left open; others do.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import ModelProto, TensorProto, ValueInfoProto, helper

from sartor.errors import UnsupportedModelError, UsageError
from sartor.onnx_model.dynamic.suggested_shapes import is_sum
from sartor.onnx_model.graphs.graph import Array
from sartor.onnx_model.states.grown_caches import Growing
from sartor.onnx_model.states.state_names import is_cache
from sartor.settings.size_range import OpenShapes, SizeRange

NO_STATE = "with --no-state callers pass the caches"
"""What messages advise."""
_MASK = "attention_mask"
_TOKENS, _EMBEDDED = ("ids", "tokens"), ("embeds", "embeddings")
_TOKENS_RANK, _HEADS_RANK = 2, 4
_INTEGERS = (TensorProto.INT32, TensorProto.INT64)
_PLACES = ("position", "positions", "seqlens_k", "sequence_length")
_ENCODER = "encoder"
# Lengths of what an encoder gave: Whisper's is 1,500.
_ENCODED = SizeRange(1, 2048)


@dataclass
class CallSizes:
    """What the symbols of a model's inputs are.

    Attributes:
        known: sizes of symbols.
        totals: symbols of the number of positions, those of the call included.
        past: symbols of the number before.
        free: symbols of a call's tokens, and of caches but for the number, which no one has to say.
        told: which symbols were bound though no one said to what.
        said: symbols whose size the user gives.
        encoded: ranges of lengths of what an encoder gave, which callers choose.
        joined: which of these symbols are another one.
    """

    known: dict[str, int] = field(default_factory=dict)
    totals: set[str] = field(default_factory=set)
    past: set[str] = field(default_factory=set)
    free: set[str] = field(default_factory=set)
    told: list[str] = field(default_factory=list)
    said: set[str] = field(default_factory=set)
    encoded: dict[str, SizeRange] = field(default_factory=dict)
    joined: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of(model: ModelProto, growing: Sequence[Growing], given: OpenShapes) -> CallSizes:
        """The sizes that inputs declare and the user gives.

        Raises:
            UsageError: if the user's do not fit.
        """
        sizes, axes = CallSizes(), {growth.input: growth.axis for growth in growing}
        dims = {value.name: dims_of(value) for value in (*inputs_of(model), *model.graph.output)}
        if unknown := next((name for name in given if name not in dims), None):
            raise UsageError(f"--shape names '{unknown}', which is no input of the model")
        for growth in growing:
            sizes.past.add(str(dims[growth.input][growth.axis]))
            sizes.free |= {str(dim) for index, dim in enumerate(dims[growth.input]) if index != growth.axis}
            after = dims[growth.output][growth.axis : growth.axis + 1]
            sizes.totals |= {str(size) for size in after if isinstance(size, str)}
        sizes.totals -= sizes.past
        own = {dim for name, shape in dims.items() if name != _MASK for dim in shape}
        sizes.totals |= {str(dim) for dim in dims.get(_MASK, ())[1:2] if isinstance(dim, str) and dim not in own}
        sizes.free |= {str(dim) for dim in dims.get(_MASK, ())[:1]}
        sizes.free |= {str(dim) for name in own_inputs(model) for dim in dims[name]}
        for name, shape in given.items():
            sizes._note(name, dims[name], shape, axes.get(name))
        sizes._leave_encoded({value.name: dims[value.name] for value in inputs_of(model) if value.name not in axes})
        return sizes

    def _leave_encoded(self, dims: Mapping[str, Sequence[int | str]]) -> None:
        """Leave lengths of what an encoder gave open, which are behind the number of sequences.

        Exporters name that of a mask otherwise than that of keys, or have no names: sizes that are the only open one of
        their input are one length, which the user may give for one of the inputs.
        """
        lengths, others = self._encoded_sizes(dims)
        given = {size for length in lengths if (size := self.known.get(length) or self.encoded.get(length)) is not None}
        usual = given.pop() if len(given) == 1 else _ENCODED
        for symbol in (*lengths, *others):
            if symbol in self.known or symbol in self.encoded:
                continue
            size = usual if symbol in lengths else _ENCODED
            if isinstance(size, int):
                self.known[symbol] = size
            else:
                self.encoded[symbol] = size
            why = "the usual bound" if size is _ENCODED else "as another input of what an encoder gave"
            self.told.append(f"{symbol}={size}, {why}")
        first = dict[SizeRange, str]()
        for symbol in lengths:
            if symbol in self.encoded and (known := first.setdefault(self.encoded[symbol], symbol)) != symbol:
                self.joined[symbol] = known

    def _encoded_sizes(self, dims: Mapping[str, Sequence[int | str]]) -> tuple[list[str], list[str]]:
        """The open sizes of what an encoder gave: those that are the only one of an input, and the others."""
        others = {*self.free, *self.past, *self.totals}
        opened = [
            [dim for dim in dict.fromkeys(shape[1:]) if isinstance(dim, str) and dim not in others]
            for name, shape in dims.items()
            if is_encoded(name)
        ]
        lengths = [*dict.fromkeys(symbols[0] for symbols in opened if len(symbols) == 1)]
        return lengths, [length for length in dict.fromkeys(itertools.chain(*opened)) if length not in lengths]

    def _note(self, name: str, dims: Sequence[int | str], shape: Sequence[int | SizeRange], axis: int | None) -> None:
        if len(dims) != len(shape):
            raise UsageError(f"--shape gives '{name}' {len(shape)} dimensions, and the model declares {len(dims)}")
        for index, (dim, size) in enumerate(zip(dims, shape, strict=True)):
            if index == axis or (isinstance(dim, str) and self.is_total(dim)):
                continue
            if isinstance(size, SizeRange) and isinstance(dim, str) and index > 0 and is_encoded(name):
                self.encoded[dim] = size
                continue
            if isinstance(size, SizeRange):
                raise UsageError(
                    f"--shape gives '{name}' the range {size}, but caches that the module keeps have one number of "
                    f"sequences and of new positions in all calls; give one size, or {NO_STATE}"
                )
            if isinstance(dim, str):
                self.known[dim] = size
                self.said.add(dim)

    def is_total(self, symbol: str) -> bool:
        """Whether a symbol is the number of positions, those of the call included."""
        return symbol in self.totals or is_sum(symbol)

    def size(self, name: str, dim: int | str) -> int:
        """The size of a dimension of another input than a cache, or of another axis than the positions'; the largest
        of what an encoder gave.

        Raises:
            UnsupportedModelError: if it is the length before the call, or has nothing to do with calls.
        """
        if isinstance(dim, int):
            return dim
        if dim in self.encoded:
            return self.encoded[dim].most
        if dim in self.past:
            raise UnsupportedModelError(f"input '{name}' has as many elements as caches before the call; {NO_STATE}")
        if dim not in self.known and dim not in self.free:
            raise UnsupportedModelError(
                f"the size '{dim}' of input '{name}' is none of a call's tokens or of caches that grow; give the "
                f"input's sizes by --shape, or {NO_STATE}"
            )
        if dim not in self.known:
            self.known[dim] = 1
            self.told.append(f"{dim}=1, as caches that the module keeps are of one sequence, a position a call")
        return self.known[dim]

    def new(self, model: ModelProto) -> int:
        """Positions of a call."""
        own = own_inputs(model)
        values = [value for value in inputs_of(model) if value.name in own and len(dims_of(value)) > 1]
        return max([1, *(self.size(value.name, dims_of(value)[own[value.name]]) for value in values)])


def has_several(model: ModelProto, given: OpenShapes) -> bool:
    """Whether a call has several tokens of a sequence, by the shapes of inputs that the user gives, or the model."""
    own = own_inputs(model)
    dims = {value.name: dims_of(value) for value in inputs_of(model) if value.name in own}
    shapes = {name: given.get(name) or shape for name, shape in dims.items()}
    # Shapes of another rank are refused once there are caches.
    counts = [shape[own[name]] for name, shape in shapes.items() if 1 < len(shape) == len(dims[name])]
    return any(isinstance(count, SizeRange) or (isinstance(count, int) and count > 1) for count in counts)


def own_inputs(model: ModelProto) -> dict[str, int]:
    """The inputs that have a call's tokens, or where they are, with the axis of these.

    Where none has a name that says so, as in a block of a decoder, all are that but caches, masks, and what an encoder
    gave: ``[batch, positions, …]``, or with heads before positions. Matrices of floats are not, as they may have
    features alone, or angles by position.
    """
    named = {value.name: _tokens_axis(value.name) for value in inputs_of(model) if is_own(value.name)}
    others = {value.name: len(dims_of(value)) for value in inputs_of(model) if _may_be_own(value)}
    return named or {name: 1 if rank < _HEADS_RANK else 2 for name, rank in others.items()}


def _may_be_own(value: ValueInfoProto) -> bool:
    """Whether an input may have a call's tokens, by its rank and type, and a name that says nothing else."""
    rank, is_integer = len(dims_of(value)), value.type.tensor_type.elem_type in _INTEGERS
    return rank > _TOKENS_RANK - is_integer and not _is_beside(value.name)


def _is_beside(name: str) -> bool:
    """Whether an input says by its name that it is something else than a call's tokens."""
    return is_cache(name) or is_mask(name) or is_encoded(name)


def _tokens_axis(name: str) -> int:
    """The axis of a call's tokens of an input, which is the last one of all but what tokens are embedded as."""
    return 1 if name.endswith(_EMBEDDED) else -1


def tokens_of(model: ModelProto) -> str:
    """The input with a call's tokens, or what they are embedded as, along its second axis; empty if there is none."""
    ranks = {value.name: len(dims_of(value)) for value in inputs_of(model) if is_own(value.name)}
    tokens = [name for name, rank in ranks.items() if name.endswith(_TOKENS) and rank == _TOKENS_RANK]
    embedded = [name for name, rank in ranks.items() if name.endswith(_EMBEDDED) and rank == _TOKENS_RANK + 1]
    # Places and kinds of tokens have names and shapes as tokens have.
    return min((*tokens, *embedded), key=lambda name: "position" in name or "type" in name, default="")


def is_mask(name: str) -> bool:
    """Whether an input says which positions count."""
    return "mask" in name and not is_encoded(name)


def is_encoded(name: str) -> bool:
    """Whether an input is what an encoder gave, or took."""
    return _ENCODER in name


def is_own(name: str) -> bool:
    """Whether an input has a call's tokens, or where they are."""
    return name.endswith((*_TOKENS, *_EMBEDDED, *_PLACES)) and not is_encoded(name)


class CallFeeds:
    """What inputs hold after some number of positions, as ``Feed`` describes it.

    Args:
        model: as it was read.
        sizes: of its inputs.
        growing: its caches.
    """

    def __init__(self, model: ModelProto, sizes: CallSizes, growing: Sequence[Growing]) -> None:
        self._values = {value.name: value for value in inputs_of(model)}
        self._axis_of = {growth.input: growth.axis for growth in growing}
        self._joined = {growth.joined: growth.input for growth in growing}
        self._sizes, self._new = sizes, sizes.new(model)

    def __call__(self, name: str, positions: int, token: int) -> Array | None:
        """The value of an input, or of a cache with the call's own positions."""
        if name in self._joined:
            return self(self._joined[name], positions + self._new, token)
        value, new = self._values.get(name), self._new
        if value is None:
            return None
        dtype, shape = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type), self._shape(value, positions)
        if name in self._axis_of:
            return np.broadcast_to(np.zeros((), dtype), shape)
        if is_mask(name):
            return np.ones(shape, dtype)
        if "position" in name and dtype.kind == "i" and shape[-1:] == [new]:
            return np.broadcast_to(np.arange(positions - new, positions, dtype=dtype), shape)
        return np.full(shape, token, dtype) if name.endswith(_TOKENS) and is_own(name) and dtype.kind in "iu" else None

    def _shape(self, value: ValueInfoProto, positions: int) -> list[int]:
        axis, shape = self._axis_of.get(value.name), list[int]()
        for index, dim in enumerate(dims_of(value)):
            if index == axis:
                shape.append(positions - self._new)
            elif axis is None and isinstance(dim, str) and self._sizes.is_total(dim):
                shape.append(positions)
            else:
                shape.append(self._sizes.size(value.name, dim))
        return shape


def inputs_of(model: ModelProto) -> Iterator[ValueInfoProto]:
    """The inputs of a model that are no weights."""
    held = {tensor.name for tensor in model.graph.initializer}
    return (value for value in model.graph.input if value.name not in held)


def dims_of(value: ValueInfoProto) -> list[int | str]:
    """Numbers, or symbols, which are made up for nameless dimensions."""
    name, dims = value.name, value.type.tensor_type.shape.dim
    return [dim.dim_value if dim.dim_value > 0 else dim.dim_param or f"{name}[{axis}]" for axis, dim in enumerate(dims)]
