"""Opens the code of a layer: the code for two sizes becomes code for any size, which it takes as arguments.

Both codes are followed from their results to what these are computed from; where types differ, a size is open. Each
pair of ops is copied with the types that ``Fit`` finds, and ops that name sizes of their own are created with these as
operands. Values that are equal for one size by coincidence, as two empty tensors of one shape, are one op there and two
for the other size, so pairs are what is copied once.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

from sartor.codegen.ir.layer import VIEW, Task, TensorType
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.sizes.dims import Dim, Extent, Product, Symbol
from sartor.codegen.ir.sizes.fit import Fit, SeveralFitError
from sartor.codegen.mlir.iree_compiler import ir, shared_context
from sartor.codegen.mlir.operations import body_of, defining_op, nested, used_values
from sartor.codegen.mlir.snippet import first_error, inline
from sartor.dialect_passes.opening.powers import POWERS, Power

_DYNAMIC = -(1 << 63)
_F32_BITS = 32
_SLICES = {
    "tensor.extract_slice": ("static_offsets", "static_sizes", "static_strides"),
    "tensor.insert_slice": ("static_offsets", "static_sizes", "static_strides"),
}


_SIZED = {**_SLICES, "tensor.expand_shape": ("static_output_shape",)}
_InnerSizes = Mapping[str, Sequence["int | ir.Value"]]
"""The numbers of an op by the attribute's name; those of an op without such attributes by no name."""


def open_body(one: Task, other: Task, fit: Fit, ends: Collection[int] = ()) -> str:
    """The code of a task for any size: a function over activations, weights, and the values of ``fit.symbols``.

    Tensors of open sizes are arguments and results as views, which ``take_out_views`` (codegen/mlir) replaces.

    Args:
        one: the task with the largest sizes.
        other: the same task with other sizes.
        fit: finds what sizes follow from.
        ends: positions of weights that are tables of which the end is read.

    Raises:
        ValueError: if the code depends on sizes in another way than by the extents of its tensors.
    """
    with shared_context() as context, ir.Location.unknown(context):
        modules = [ir.Module.parse(task.body) for task in (one, other)]
        functions = [module.body.operations[0].operation for module in modules]
        return _Opened(one, functions[0], functions[1], fit, ends).text()


class _Opened:
    def __init__(self, task: Task, one: ir.Operation, other: ir.Operation, fit: Fit, ends: Collection[int]) -> None:
        self._task = task
        self._ends = {len(task.inputs) + end for end in ends}
        self._fit = fit
        self._blocks = body_of(one), body_of(other)
        self._values: dict[tuple[ir.Value, ir.Value], ir.Value] = {}
        self._sizes: dict[Dim, ir.Value] = {}

    def text(self) -> str:
        """The function's text."""
        self._module = ir.Module.parse(f"util.func public @layer({self._signature()}) {{ util.return }}")
        function = self._module.body.operations[0].operation
        block = body_of(function)
        self._end = block.operations[0].operation
        arguments = list(block.arguments)
        for symbol, value in zip(self._fit.symbols, arguments[len(self._blocks[0].arguments) :], strict=True):
            self._sizes[Extent((symbol,))] = value
        self._take_arguments(arguments)
        returned = self._returned()
        self._end.erase()
        kind = ir.FunctionType.get([argument.type for argument in arguments], [value.type for value in returned])
        function.attributes["function_type"] = ir.TypeAttr.get(kind)
        try:
            self._module.operation.verify()
        except ir.MLIRError as error:
            raise ValueError(first_error(error)) from None
        return str(function.get_asm(use_local_scope=True))

    def _signature(self) -> str:
        """The arguments: activations of any size, weights as they are stored, symbols."""
        count = len(self._task.inputs)
        pairs = [*zip(self._blocks[0].arguments, self._blocks[1].arguments, strict=True)]
        opened = [self._type(one, other) for one, other in pairs[:count]]
        types = [VIEW if tensor.open_dims else str(tensor) for tensor in opened]
        types += [str(one.type) for one, _ in pairs[count:]]
        types += ["index"] * len(self._fit.symbols)
        return ", ".join(f"%arg{index}: {kind}" for index, kind in enumerate(types))

    def _take_arguments(self, arguments: Sequence[ir.Value]) -> None:
        """Weights of open sizes, as a table of positions, are read up to the size of the call, or as much of their
        end."""
        triples = zip(*(block.arguments for block in self._blocks), arguments, strict=False)
        for index, (one, other, value) in enumerate(triples):
            opened = self._type(one, other)
            if str(opened) == str(value.type):
                self._values[one, other] = value
            elif str(value.type) == VIEW:
                self._values[one, other] = self._imported(value, opened)
            else:
                self._values[one, other] = self._part(value, opened.dims or (), is_end=index in self._ends)

    def _imported(self, view: ir.Value, opened: TensorType) -> ir.Value:
        kind, sizes = ir.Type.parse(str(opened)), [self._size(open_dim) for open_dim in opened.open_dims]
        segments = ir.DenseI32ArrayAttr.get([1, len(sizes), 0, 0])
        attributes = {"target_encoding": ir.TypeAttr.get(kind), "operandSegmentSizes": segments}
        return self._create("hal.tensor.import", kind, [view, *sizes], attributes)

    def _returned(self) -> list[ir.Value]:
        """Return the results, those of open sizes as views."""
        ends = [list(block.operations)[-1].operation.operands for block in self._blocks]
        exported = [self._exported(*pair) for pair in zip(*ends, strict=True)]
        ir.Operation.create("util.return", operands=exported, ip=ir.InsertionPoint(self._end))
        return exported

    def _exported(self, one: ir.Value, other: ir.Value) -> ir.Value:
        value, opened = self._value(one, other), self._type(one, other)
        if not opened.open_dims:
            return value
        attributes: dict[str, ir.Attribute] = {"source_encoding": ir.TypeAttr.get(value.type)}
        operands = [value, *map(self._size, opened.open_dims)]
        return self._create("hal.tensor.export", ir.Type.parse(VIEW), operands, attributes)

    def _part(self, table: ir.Value, dims: Sequence[Dim], *, is_end: bool) -> ir.Value:
        """The first elements of a table along each dimension, or the last ones."""
        names = ["static_offsets", "static_sizes", "static_strides"]
        opened = [dim for dim in dims if isinstance(dim, Extent)]
        behind = [
            self._arithmetic("arith.subi", self._size(extent.most), self._size(extent)) for extent in opened if is_end
        ]
        starts = [_DYNAMIC if is_end and isinstance(dim, Extent) else 0 for dim in dims]
        numbers = [starts, [_static(dim) for dim in dims], [1] * len(dims)]
        attributes: dict[str, ir.Attribute] = {
            name: ir.DenseI64ArrayAttr.get(number) for name, number in zip(names, numbers, strict=True)
        }
        sizes = [self._size(extent) for extent in opened]
        attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([1, len(behind), len(sizes), 0])
        kind = ir.Type.parse(str(TensorType.of_dims(dims, str(ir.RankedTensorType(table.type).element_type))))
        return self._create("tensor.extract_slice", kind, [table, *behind, *sizes], attributes)

    def _value(self, one: ir.Value, other: ir.Value) -> ir.Value:
        """The value that two are for some sizes.

        Raises:
            ValueError: if they are not computed alike.
        """
        if (one, other) not in self._values:
            op, twin = defining_op(one), defining_op(other)
            if op is None or twin is None or op.name != twin.name:
                raise ValueError("its code is not the same for all sizes")
            for pair, value in zip(zip(op.results, twin.results, strict=True), self._opened(op, twin), strict=True):
                self._values[pair] = value
        return self._values[one, other]

    def _opened(self, op: ir.Operation, twin: ir.Operation) -> Sequence[ir.Value]:
        """The results of the op that two are for some sizes."""
        if op.name == "arith.constant":
            return [self._constant(op, twin)]
        if op.name == "tensor.empty":
            opened = self._type(op.results[0], twin.results[0])
            sizes = [self._size(open_dim) for open_dim in opened.open_dims]
            return [self._create(op.name, ir.Type.parse(str(opened)), sizes, {})]
        if op.name == "tensor.expand_shape":
            return [self._expanded(op, twin)]
        return [self._sliced(op, twin)] if op.name in _SLICES else self._copied(op, twin)

    def _expanded(self, op: ir.Operation, twin: ir.Operation) -> ir.Value:
        opened = self._type(op.results[0], twin.results[0])
        dims = opened.dims or opened.shape
        attributes = {
            "reassociation": op.attributes["reassociation"],
            "static_output_shape": ir.DenseI64ArrayAttr.get([_static(dim) for dim in dims]),
        }
        operands = [self._value(op.operands[0], twin.operands[0]), *map(self._size, opened.open_dims)]
        return self._create(op.name, ir.Type.parse(str(opened)), operands, attributes)

    def _sliced(self, op: ir.Operation, twin: ir.Operation) -> ir.Value:
        """An op whose attributes say where it reads or writes, some of which follow from sizes.

        Raises:
            ValueError: if it takes sizes as operands.
        """
        if any(isinstance(operand.type, ir.IndexType) for operand in op.operands):
            raise ValueError(f"{op.name} takes sizes that are computed")
        attributes = {attribute.name: attribute.attr for attribute in _attributes(op)}
        operands = [self._value(*pair) for pair in zip(op.operands, twin.operands, strict=True)]
        segments = [1] * len(operands)
        for name in _SLICES[op.name]:
            numbers = [list(ir.DenseI64ArrayAttr(op_of_pair.attributes[name])) for op_of_pair in (op, twin)]
            dims = [self._fit.dim(*pair) for pair in zip(*numbers, strict=True)]
            attributes[name] = ir.DenseI64ArrayAttr.get([_static(dim) for dim in dims])
            given = [self._size(dim) for dim in dims if isinstance(dim, Extent)]
            operands, segments = [*operands, *given], [*segments, len(given)]
        attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get(segments)
        opened = ir.Type.parse(str(self._type(op.results[0], twin.results[0])))
        return self._create(op.name, opened, operands, attributes)

    def _constant(self, op: ir.Operation, twin: ir.Operation) -> ir.Value:
        """A constant: the same for all sizes, a number that follows from sizes, or one that fills a tensor."""
        if op.attributes["value"] == twin.attributes["value"]:
            return op.clone(ip=ir.InsertionPoint(self._end)).operation.results[0]
        kind = op.results[0].type
        if isinstance(kind, ir.RankedTensorType):
            return self._filled(op, twin)
        one, other = (op_of_pair.attributes["value"] for op_of_pair in (op, twin))
        if isinstance(one, ir.FloatAttr):
            return self._number(one.value, ir.FloatAttr(other).value, kind)
        return self._whole(one, other, kind)

    def _whole(self, one: ir.Attribute, other: ir.Attribute, kind: ir.Type) -> ir.Value:
        """An integer that is a size, or follows from sizes as an amount does."""
        size = self._amount(ir.IntegerAttr(one).value, ir.IntegerAttr(other).value)
        return size if isinstance(kind, ir.IndexType) else self._create("arith.index_cast", kind, [size], {})

    def _number(self, one: float, other: float, kind: ir.Type) -> ir.Value:
        """A float that is a size, as what a mean divides by, or a power of one, as what scales scores of attention.

        Raises:
            ValueError: if it follows from sizes in another way, or in several, which is a ``SeveralFitError``.
        """
        several: SeveralFitError | None = None
        if one.is_integer() and other.is_integer():
            return self._float(self._amount(int(one), int(other)), kind)
        for power in POWERS:
            first, second = (power.size_of(number, str(kind)) for number in (one, other))
            if first is None or second is None:
                continue
            try:
                return self._powered(self._amount(first, second), power, kind)
            except SeveralFitError as error:
                several = several or error
            except RejectionError:
                continue
        if several is not None:
            raise several
        raise ValueError(f"it computes with a number that is {one:g} or {other:g}, depending on sizes")

    def _float(self, size: ir.Value, kind: ir.Type) -> ir.Value:
        whole = self._create("arith.index_cast", ir.IntegerType.get_signless(64), [size], {})
        return self._create("arith.sitofp", kind, [whole], {})

    def _powered(self, size: ir.Value, power: Power, kind: ir.Type) -> ir.Value:
        """The power of a size, of types narrower than f32 rounded once."""
        wide = kind if ir.FloatType(kind).width > _F32_BITS else ir.F32Type.get()
        value = self._float(size, wide)
        for _ in range(power.roots):
            value = self._create("math.sqrt", wide, [value], {})
        if power.is_inverse:
            one = self._create("arith.constant", wide, [], {"value": ir.FloatAttr.get(wide, 1.0)})
            value = self._create("arith.divf", wide, [one, value], {})
        return value if wide == kind else self._create("arith.truncf", kind, [value], {})

    def _filled(self, op: ir.Operation, twin: ir.Operation) -> ir.Value:
        """A tensor with one number in all its elements.

        Raises:
            ValueError: if it has others, or they depend on sizes.
        """
        values = [ir.DenseElementsAttr(op_of_pair.attributes["value"]) for op_of_pair in (op, twin)]
        if not all(value.is_splat for value in values):
            raise ValueError("it has a constant whose elements depend on sizes")
        one, other = (value.get_splat_value() for value in values)
        element = ir.RankedTensorType(op.results[0].type).element_type
        if str(one) == str(other):
            number = self._create("arith.constant", element, [], {"value": one})
        elif isinstance(one, ir.FloatAttr):
            number = self._number(one.value, ir.FloatAttr(other).value, element)
        else:
            number = self._whole(one, other, element)
        opened = self._type(op.results[0], twin.results[0])
        kind = ir.Type.parse(str(opened))
        empty = self._create("tensor.empty", kind, [*map(self._size, opened.open_dims)], {})
        # IREE 3.13 lowers no tensor.splat of open size that a dispatch computes on: "failed to legalize operation".
        text = f"""util.func private @fill(%number: {element}, %tensor: {kind}) -> {kind} {{
  %filled = linalg.fill ins(%number : {element}) outs(%tensor : {kind}) -> {kind}
  util.return %filled : {kind}
}}"""
        return inline(text, [number, empty], ir.InsertionPoint(self._end))[0]

    def _copied(self, op: ir.Operation, twin: ir.Operation) -> Sequence[ir.Value]:
        self._check_same(op, twin)
        # Use by use: two constants of one code may be one in the other, as a last row and a factor.
        outside = {*used_values(op)}
        uses = [
            zip(*(op_of_pair.operands for op_of_pair in pair), strict=True)
            for pair in zip(nested(op), nested(twin), strict=True)
        ]
        values = [[self._value(*pair) if pair[0] in outside else None for pair in pairs] for pairs in uses]
        inner = [*zip(nested(op), nested(twin), strict=True)][1:]
        # Before the copy, which uses them inside.
        sized = [self._inner_sizes(*pair) for pair in inner]
        clone = op.clone(ip=ir.InsertionPoint(self._end)).operation
        for copy, operands in zip(nested(clone), values, strict=True):
            for index, value in enumerate(operands):
                if value is not None:
                    copy.operands[index] = value
        for made in zip(nested(op), nested(twin), nested(clone), strict=True):
            for one, other, value in zip(*map(_made_values, made), strict=True):
                if isinstance(one.type, ir.RankedTensorType):
                    value.set_type(ir.Type.parse(str(self._type(one, other))))
        for copy, sizes in zip([*nested(clone)][1:], sized, strict=True):
            if sizes is not None:
                _resize(copy, sizes)
        return list(clone.results)

    def _inner_sizes(self, op: ir.Operation, twin: ir.Operation) -> _InnerSizes | None:
        """The numbers of an op inside regions, as in loops over steps, that are sizes; None if none of it is."""
        names = _SIZED.get(op.name, ())
        sizes: dict[str, list[int | ir.Value]] = {}
        for name in names:
            pair = (list(ir.DenseI64ArrayAttr(op_of_pair.attributes[name])) for op_of_pair in (op, twin))
            dims = [self._fit.dim(*numbers) for numbers in zip(*pair, strict=True)]
            sizes[name] = [dim if isinstance(dim, int) else self._size(dim) for dim in dims]
        if op.name == "tensor.empty":
            opened = self._type(op.results[0], twin.results[0]).open_dims
            return {"": [*map(self._size, opened)]} if opened else None
        is_open = any(isinstance(number, ir.Value) for numbers in sizes.values() for number in numbers)
        return sizes if is_open else None

    def _check_same(self, op: ir.Operation, twin: ir.Operation) -> None:
        """Check that ops agree in all but the types of their operands and results."""
        names = [sorted(attribute.name for attribute in _attributes(one)) for one in (op, twin)]
        alike = names[0] == names[1] and all(
            str(op.attributes[name]) == str(twin.attributes[name]) for name in names[0]
        )
        inner = [list(nested(op_of_pair))[1:] for op_of_pair in (op, twin)]
        if not alike or len(inner[0]) != len(inner[1]) or not all(map(_are_same, *inner)):
            raise ValueError(f"its code is not the same for all sizes, at {op.name}")

    def _create(
        self, name: str, kind: ir.Type, operands: Sequence[ir.Value], attributes: dict[str, ir.Attribute]
    ) -> ir.Value:
        point = ir.InsertionPoint(self._end)
        op = ir.Operation.create(name, results=[kind], operands=list(operands), attributes=attributes, ip=point)
        return op.results[0]

    def _size(self, dim: Dim) -> ir.Value:
        """The value of a size, which is computed once."""
        if dim not in self._sizes:
            if isinstance(dim, int):
                number = ir.IntegerAttr.get(ir.IndexType.get(), dim)
                self._sizes[dim] = self._create("arith.constant", ir.IndexType.get(), [], {"value": number})
            else:
                total = functools.reduce(partial(self._arithmetic, "arith.muli"), map(self._symbol, dim.symbols))
                if dim.factor != 1:
                    total = self._arithmetic("arith.muli", total, self._size(dim.factor))
                if dim.offset:
                    total = self._arithmetic("arith.addi", total, self._size(dim.offset))
                if dim.divisor != 1:
                    # From half of an unknown number IREE 3.13 takes vectors to be of up to 2^52 elements, and fails.
                    total = self._arithmetic("arith.divui", total, self._size(dim.divisor))
                    total = self._create("util.optimization_barrier", ir.IndexType.get(), [total], {})
                self._sizes[dim] = total
        return self._sizes[dim]

    def _symbol(self, symbol: Symbol) -> ir.Value:
        """The value of a symbol: an argument, or the sum of others, which is computed once."""
        extent = Extent((symbol,))
        if extent not in self._sizes:
            terms = map(self._size, symbol.terms)
            self._sizes[extent] = functools.reduce(partial(self._arithmetic, "arith.addi"), terms)
        return self._sizes[extent]

    def _amount(self, one: int, other: int) -> ir.Value:
        """A number that is a size, a last index, or how many elements some dimensions have."""
        count = self._fit.amount(one, other)
        if not isinstance(count, Product):
            return self._size(count)
        total = functools.reduce(partial(self._arithmetic, "arith.muli"), map(self._size, count.parts))
        return total if count.factor == 1 else self._arithmetic("arith.muli", total, self._size(count.factor))

    def _arithmetic(self, name: str, one: ir.Value, other: ir.Value) -> ir.Value:
        return self._create(name, ir.IndexType.get(), [one, other], {})

    def _type(self, one: ir.Value, other: ir.Value) -> TensorType:
        """The type of a tensor that has these for some sizes."""
        return open_type(TensorType.parse(str(one.type)), TensorType.parse(str(other.type)), self._fit)


def open_type(one: TensorType, other: TensorType, fit: Fit) -> TensorType:
    """The type of a tensor that has these types for some sizes.

    Raises:
        ValueError: if they differ in more than sizes.
    """
    if one.dtype != other.dtype or len(one.shape) != len(other.shape):
        raise ValueError(f"it has a tensor {one} for one size and {other} for another")
    return TensorType.of_dims([fit.dim(*pair) for pair in zip(one.shape, other.shape, strict=True)], one.dtype)


def _static(dim: Dim) -> int:
    return dim if isinstance(dim, int) else _DYNAMIC


def _attributes(op: ir.Operation) -> Iterator[ir.NamedAttribute]:
    for index in range(len(op.attributes)):
        yield op.attributes[index]


def _made_values(op: ir.Operation) -> list[ir.Value]:
    """The results of an op, and the arguments of its blocks."""
    return [*op.results, *(value for region in op.regions for block in region.blocks for value in block.arguments)]


def _resize(op: ir.Operation, sizes: _InnerSizes) -> None:
    """Replace an op by one that takes sizes as operands behind, or between, those that it takes already."""
    attributes = {attribute.name: attribute.attr for attribute in _attributes(op)}
    groups = [list(sizes[name]) for name in sizes]
    count = len(op.operands)
    if op.name in _SLICES:
        segments = list(ir.DenseI32ArrayAttr(attributes["operandSegmentSizes"]))
        tensors = len(segments) - len(_SLICES[op.name])
        count = sum(segments[:tensors])
    given, rest = [*op.operands][:count], iter([*op.operands][count:])
    taken = []
    for name, numbers in zip(sizes, groups, strict=True):
        values = [next(rest) if number == _DYNAMIC else number for number in numbers]
        taken.append([value for value in values if isinstance(value, ir.Value)])
        if name:
            static = [_DYNAMIC if isinstance(value, ir.Value) else value for value in values]
            attributes[name] = ir.DenseI64ArrayAttr.get(static)
    if op.name in _SLICES:
        attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([*segments[:tensors], *map(len, taken)])
    operands = [*given, *(value for values in taken for value in values)]
    kinds, point = [result.type for result in op.results], ir.InsertionPoint(op)
    made = ir.Operation.create(op.name, results=kinds, operands=operands, attributes=attributes, ip=point)
    for result, value in zip(op.results, made.results, strict=True):
        result.replace_all_uses_with(value)
    op.erase()


def _are_same(one: ir.Operation, other: ir.Operation) -> bool:
    """Whether two ops inside regions agree, but for the sizes of tensors."""
    kinds = [[_kind(value) for value in _made_values(op)] for op in (one, other)]
    sizes = _SIZED.get(one.name, ())
    attributes = [
        sorted(f"{attribute.name}={attribute.attr}" for attribute in _attributes(op) if attribute.name not in sizes)
        for op in (one, other)
    ]
    return one.name == other.name and kinds[0] == kinds[1] and attributes[0] == attributes[1]


def _kind(value: ir.Value) -> str:
    """The type of a value, without the sizes of a tensor."""
    return "tensor" if isinstance(value.type, ir.RankedTensorType) else str(value.type)
