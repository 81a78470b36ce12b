"""Products by weights that are stored in blocks of small integers: calls of them, and the layers that these become.

A layer decodes its weight and multiplies by it. Code that IREE generates computes both; kernels of our own find the
encoding by an attribute of the op that decodes (``sartor.codegen.kernels.encoded.encoded_weight``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.ir.encoding import ATTRIBUTE, GROUP_OF_PLANES, IN_PLANES, PARTS, PERMISSION, BlockEncoding
from sartor.codegen.ir.layer import F32, TensorType
from sartor.codegen.mlir.element_types import to_f32
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.subgraphs.declared_calls import call_instead, callee_of, inline, operators

_OPERATOR = "EncodedProduct"
PREFIX = "encoded_product"
"""What names of functions that stand for products begin with."""
_SEPARATOR = "/"
_PARTS = "torch.onnx.parts"
# Position of the zero points among the operands.
_POINTS = 3


def call_products(module: ir.Operation) -> None:
    """Replace operators that stand for products by encoded weights by calls, in place.

    Args:
        module: ``torch.operator`` ops, as imported from ONNX.
    """
    with module.context, ir.Location.unknown(module.context):
        for number, op in enumerate(operators(module, _OPERATOR)):
            encoding = ir.StringAttr(op.attributes["torch.onnx.encoding"]).value
            permission = PERMISSION if "torch.onnx.may_round" in op.attributes else ""
            parts = str(ir.IntegerAttr(op.attributes[_PARTS]).value) if _PARTS in op.attributes else "1"
            call_instead(module, op, _SEPARATOR.join((PREFIX, encoding, permission, parts, str(number))))


def expand_product(call: ir.Operation) -> None:
    """Replace an op by the ops that compute it, in place, if it is the call of a product by an encoded weight."""
    symbol = callee_of(call)
    encoding = encoding_of(symbol)
    if encoding is not None:
        kinds = [TensorType.parse(str(value.type)) for value in call.operands]
        result = TensorType.parse(str(call.results[0].type))
        *_, permission, parts, _ = symbol.split(_SEPARATOR)
        product = _Product(encoding, kinds, result, may_round=permission == PERMISSION, parts=int(parts))
        inline(call, product.function(str(call.location)))


def encoding_of(symbol: str) -> BlockEncoding | None:
    """The encoding of the weight of the product that a function stands for; None if it stands for none."""
    prefix, _, rest = symbol.partition(_SEPARATOR)
    return BlockEncoding.parse(rest.partition(_SEPARATOR)[0]) if prefix == PREFIX else None


@dataclass(frozen=True)
class _Product:
    """A product, of whose function the text is written.

    Attributes:
        encoding: of the weight.
        operands: LHS ``[…, depth]``, codes, scales, and zero points if there are any.
        result: ``[…, columns]``.
        may_round: whether the model permits to round the LHS.
        parts: of how many equal parts of a row of the LHS at most one is not zero.
    """

    encoding: BlockEncoding
    operands: Sequence[TensorType]
    result: TensorType
    may_round: bool
    parts: int

    def function(self, location: str) -> str:
        """MLIR of a function that computes the product; ``location`` is the product's, as ``loc(…)``."""
        arguments = ", ".join(f"%a{index}: {kind}" for index, kind in enumerate(self.operands))
        given, weight = self.operands[0], self.encoding.meaning
        lhs, product = _matrix(given), _matrix(self.result)
        groups = f"[[{', '.join(map(str, range(len(given.shape) - 1)))}], [{len(given.shape) - 1}]]"
        sizes = f"output_shape {list(self.result.shape)}"
        before = f"%lhs = tensor.collapse_shape %a0 {groups} : {given} into {lhs} {location}"
        after = f"%result = tensor.expand_shape %product {groups} {sizes} : {product} into {self.result} {location}"
        is_matrix = lhs == given
        return f"""util.func private @product({arguments}) -> {self.result} {{
  %zero = arith.constant 0.0 : f32
  {self._decoding(location)}
  {"" if is_matrix else before}
  %empty = tensor.empty() : {product}
  %start = linalg.fill ins(%zero : f32) outs(%empty : {product}) -> {product}
  %product = linalg.matmul ins({"%a0" if is_matrix else "%lhs"}, %weight : {lhs}, {weight})
    outs(%start : {product}) -> {product} {location}
  {"" if is_matrix else after}
  util.return {"%product" if is_matrix else "%result"} : {self.result}
}}"""

    def _decoding(self, location: str) -> str:
        """Lines that compute the weight, ``[depth, columns]``: code by code, ``[block, byte, code, column]``; of codes
        in planes ``[block, group of them, code, column]``."""
        of = self.encoding
        parts = (
            (of.block // GROUP_OF_PLANES, GROUP_OF_PLANES) if self._has_planes else (of.block_bytes, of.codes_of_byte)
        )
        split = TensorType((of.blocks, *parts, of.columns), F32)
        whole = TensorType((of.blocks * of.block, of.columns), F32)
        permission = f", {PERMISSION} = true" if self.may_round else ""
        permission += f", {PARTS} = {self.parts}" if self.parts > 1 else ""
        loops = "(d0, d1, d2, d3)"
        # Codes in planes are not among the operands: each element takes two of their bytes.
        first = 2 if self._has_planes else 1
        maps = [f"{loops} -> (d3, d0, d1)", *[f"{loops} -> (d3, d0)"] * (len(self.operands) - 2)][first - 1 :]
        maps.append(f"{loops} -> {loops}")
        names = [f"%a{index}" for index in range(first, len(self.operands))]
        kinds = ", ".join(map(str, self.operands[first:]))
        inner = ", ".join(f"%e{index}: {kind.dtype}" for index, kind in enumerate(self.operands[first:], first))
        body = "\n    ".join(self._element())
        cut = f"[0, 0] [{of.depth}, {of.columns}] [1, 1] : {whole} to {of.meaning}"
        weight = "%weight" if whole == of.meaning else "%whole"
        lines = f"""%codes = tensor.empty() : {split}
  %decoded = linalg.generic {{indexing_maps = [{", ".join(f"affine_map<{map_text}>" for map_text in maps)}],
    iterator_types = ["parallel", "parallel", "parallel", "parallel"]}}
    ins({", ".join(names)} : {kinds}) outs(%codes : {split}) attrs = {{{ATTRIBUTE} = "{of}"{permission}}} {{
    ^bb0({inner}, %out: f32):
    {body}
  }} -> {split} {location}
  {weight} = tensor.collapse_shape %decoded [[0, 1, 2], [3]] : {split} into {whole}"""
        return lines if whole == of.meaning else f"{lines}\n  %weight = tensor.extract_slice %whole{cut}"

    def _element(self) -> list[str]:
        """Lines that decode one element."""
        point, subtracted = self._point()
        scale, factor = to_f32("%scale", "%e2", self.operands[2].dtype)
        return [
            *(self._code_in_planes() if self._has_planes else self._code()),
            "%integer = arith.uitofp %code : i32 to f32",
            *point,
            f"%centred = arith.subf %integer, {subtracted} : f32",
            *scale,
            f"%value = arith.mulf %centred, {factor} : f32",
            "linalg.yield %value : f32",
        ]

    @property
    def _has_planes(self) -> bool:
        return self.encoding.bits == IN_PLANES

    def _code(self) -> list[str]:
        """Lines that take the code out of its byte."""
        of = self.encoding
        return [
            "%part = linalg.index 2 : index",
            "%number = arith.index_cast %part : index to i32",
            f"%bits = arith.constant {of.bits} : i32",
            f"%mask = arith.constant {(1 << of.bits) - 1} : i32",
            "%distance = arith.muli %number, %bits : i32",
            "%byte = arith.extui %e1 : i8 to i32",
            "%shifted = arith.shrui %byte, %distance : i32",
            "%code = arith.andi %shifted, %mask : i32",
        ]

    def _code_in_planes(self) -> list[str]:
        """Lines that join the two lower bits of the code and the highest, as ``in_planes`` stores them."""
        stored = self.operands[1]
        sizes = {"one": 1, "two": 2, "three": 3, "four": 4, "eight": 8, "twelve": 12, "sixteen": 16}
        return [
            "%block = linalg.index 0 : index",
            "%group = linalg.index 1 : index",
            "%row = linalg.index 2 : index",
            "%column = linalg.index 3 : index",
            *(f"%{name} = arith.constant {number} : index" for name, number in sizes.items()),
            "%start = arith.muli %group, %twelve : index",
            "%in_low = arith.divui %row, %four : index",
            "%place = arith.remui %row, %four : index",
            "%low_at = arith.addi %start, %in_low : index",
            "%in_high = arith.remui %in_low, %four : index",
            "%behind = arith.addi %start, %eight : index",
            "%high_at = arith.addi %behind, %in_high : index",
            f"%low_byte = tensor.extract %a1[%column, %block, %low_at] : {stored}",
            f"%high_byte = tensor.extract %a1[%column, %block, %high_at] : {stored}",
            "%low_distance = arith.muli %place, %two : index",
            "%word = arith.divui %row, %sixteen : index",
            "%before = arith.muli %word, %four : index",
            "%high_distance = arith.addi %before, %place : index",
            *(
                line
                for name in ("low", "high")
                for line in (
                    f"%{name}_wide = arith.extui %{name}_byte : i8 to i32",
                    f"%{name}_by = arith.index_cast %{name}_distance : index to i32",
                    f"%{name}_shifted = arith.shrui %{name}_wide, %{name}_by : i32",
                )
            ),
            "%three_bits = arith.index_cast %three : index to i32",
            "%one_bit = arith.index_cast %one : index to i32",
            "%two_bits = arith.index_cast %two : index to i32",
            "%lower = arith.andi %low_shifted, %three_bits : i32",
            "%highest = arith.andi %high_shifted, %one_bit : i32",
            "%raised = arith.shli %highest, %two_bits : i32",
            "%code = arith.ori %lower, %raised : i32",
        ]

    def _point(self) -> tuple[list[str], str]:
        """Lines that compute the zero point in f32, and its name."""
        if len(self.operands) <= _POINTS:
            return [f"%point = arith.constant {float(self.encoding.middle)} : f32"], "%point"
        return to_f32("%point", f"%e{_POINTS}", self.operands[_POINTS].dtype)


def _matrix(kind: TensorType) -> TensorType:
    """A type with all dimensions but the last joined."""
    return TensorType((TensorType(kind.shape[:-1], kind.dtype).elements, kind.shape[-1]), kind.dtype)
