"""Look-ups of rows in tables that are stored in blocks of small integers: calls of them, and what these become.

Only the rows that are looked up are decoded. A table is the weight of a product, whose columns are looked up, so that
networks whose last product is by their table of tokens store one weight for both, in the form that the product reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.ir.encoding import BlockEncoding
from sartor.codegen.ir.layer import TensorType
from sartor.codegen.mlir.element_types import to_f32
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.subgraphs.declared_calls import call_instead, callee_of, inline, operators

ATTRIBUTE = "looks_up"
"""The attribute by which the op that decodes rows names their encoding."""
COLUMNS = "looks_up_columns"
"""The attribute of an op that looks up columns of a product's weight of floats, in place of rows of a table."""
PREFIX = "encoded_look_up"
"""What names of functions that stand for look-ups begin with."""
_OPERATOR = "EncodedLookUp"
_SEPARATOR = "/"
_WORD_BYTES = 4


def call_look_ups(module: ir.Operation) -> None:
    """Replace operators that stand for look-ups by calls, in place.

    Args:
        module: ``torch.operator`` ops, as imported from ONNX.
    """
    with module.context, ir.Location.unknown(module.context):
        for number, op in enumerate(operators(module, _OPERATOR)):
            encoding = ir.StringAttr(op.attributes["torch.onnx.encoding"]).value
            call_instead(module, op, _SEPARATOR.join((PREFIX, encoding, str(number))))


def expand_look_up(call: ir.Operation) -> None:
    """Replace an op by the ops that compute it, in place, if it is the call of a look-up."""
    prefix, _, rest = callee_of(call).partition(_SEPARATOR)
    if prefix != PREFIX:
        return
    encoding = BlockEncoding.parse(rest.partition(_SEPARATOR)[0])
    indices, *parts = [TensorType.parse(str(value.type)) for value in call.operands]
    result = TensorType.parse(str(call.results[0].type))
    inline(call, LookUp(encoding, indices, tuple(parts), result).function(str(call.location)))


@dataclass(frozen=True)
class LookUp:
    """A look-up, of whose function the text is written.

    Attributes:
        encoding: of the weight whose columns are looked up.
        indices: ``[…]``, of integers; negative ones count from the last column.
        parts: codes, scales, and zero points if there are any: as ``BlockEncoding`` has them, or packed in panels of
            ``width`` columns, codes ``[panels, words of a column, width, 4]``, the others ``[panels, blocks, width]``.
        result: ``[…, depth]``, of f32.
        width: columns of a panel; 0 for parts that are not packed.
    """

    encoding: BlockEncoding
    indices: TensorType
    parts: Sequence[TensorType]
    result: TensorType
    width: int = 0

    def function(self, location: str) -> str:
        """MLIR of a function of the indices and the parts; ``location`` is the look-up's, as ``loc(…)``."""
        names = [f"%p{index}: {kind}" for index, kind in enumerate(self.parts)]
        rank = len(self.indices.shape)
        loops = [f"d{index}" for index in range(rank + 1)]
        read, all_loops = ", ".join(loops[:-1]), ", ".join(loops)
        kinds = ", ".join(['"parallel"'] * len(loops))
        body = "\n    ".join((*self._place(rank), *self._element()))
        return f"""util.func private @look_up(%indices: {self.indices}, {", ".join(names)}) -> {self.result} {{
  %empty = tensor.empty() : {self.result}
  %rows = linalg.generic {{indexing_maps = [affine_map<({all_loops}) -> ({read})>,
    affine_map<({all_loops}) -> ({all_loops})>], iterator_types = [{kinds}]}}
    ins(%indices : {self.indices}) outs(%empty : {self.result}) attrs = {{{ATTRIBUTE} = "{self.encoding}"}} {{
    ^bb0(%index: {self.indices.dtype}, %out: f32):
    {body}
    linalg.yield %value : f32
  }} -> {self.result} {location}
  util.return %rows : {self.result}
}}"""

    def _place(self, rank: int) -> list[str]:
        """Lines that compute the column, and the block, byte and part of the byte where its code is."""
        of = self.encoding
        return [
            f"%given = arith.index_cast %index : {self.indices.dtype} to index",
            "%zero = arith.constant 0 : index",
            f"%columns = arith.constant {of.columns} : index",
            "%is_negative = arith.cmpi slt, %given, %zero : index",
            "%wrapped = arith.addi %given, %columns : index",
            "%counted = arith.select %is_negative, %wrapped, %given : index",
            # A number that is no row must not read other memory.
            f"%last = arith.constant {of.columns - 1} : index",
            "%from_first = arith.maxsi %counted, %zero : index",
            "%column = arith.minsi %from_first, %last : index",
            f"%row = linalg.index {rank} : index",
            f"%block_rows = arith.constant {of.block} : index",
            "%block = arith.divui %row, %block_rows : index",
            "%inside = arith.remui %row, %block_rows : index",
            f"%codes = arith.constant {of.codes_of_byte} : index",
            "%byte = arith.divui %inside, %codes : index",
            "%part = arith.remui %inside, %codes : index",
        ]

    def _element(self) -> list[str]:
        """Lines that decode an element."""
        of, (codes, scales, *points) = self.encoding, self.parts
        where, place = self._of_block()
        at_code, byte = self._of_byte()
        return [
            *where,
            *byte,
            f"%stored = tensor.extract %p0[{at_code}] : {codes}",
            "%number = arith.index_cast %part : index to i32",
            f"%bits = arith.constant {of.bits} : i32",
            f"%mask = arith.constant {(1 << of.bits) - 1} : i32",
            "%distance = arith.muli %number, %bits : i32",
            f"%wide = arith.extui %stored : {codes.dtype} to i32",
            "%shifted = arith.shrui %wide, %distance : i32",
            "%code = arith.andi %shifted, %mask : i32",
            "%integer = arith.uitofp %code : i32 to f32",
            *_extracted("scale", f"%p1[{place}] : {scales}", scales.dtype),
            *(
                _extracted("point", f"%p2[{place}] : {points[0]}", points[0].dtype)
                if points
                else [f"%point = arith.constant {float(of.middle)} : f32"]
            ),
            "%centred = arith.subf %integer, %point : f32",
            "%value = arith.mulf %centred, %scale : f32",
        ]

    def _of_block(self) -> tuple[list[str], str]:
        """Lines that compute where a block's scale is, and its indices."""
        if not self.width:
            return [], "%column, %block"
        return [
            f"%width = arith.constant {self.width} : index",
            "%panel = arith.divui %column, %width : index",
            "%lane = arith.remui %column, %width : index",
        ], "%panel, %block, %lane"

    def _of_byte(self) -> tuple[str, list[str]]:
        """The indices of a code's byte, and lines that compute them."""
        if not self.width:
            return "%column, %block, %byte", []
        return "%panel, %word, %lane, %in_word", [
            f"%words = arith.constant {self.encoding.block_bytes // _WORD_BYTES} : index",
            f"%word_bytes = arith.constant {_WORD_BYTES} : index",
            "%before = arith.muli %block, %words : index",
            "%behind = arith.divui %byte, %word_bytes : index",
            "%word = arith.addi %before, %behind : index",
            "%in_word = arith.remui %byte, %word_bytes : index",
        ]


def _extracted(name: str, source: str, dtype: str) -> list[str]:
    """Lines that read a value and convert it to f32; integers have no sign."""
    lines, _ = to_f32(f"%{name}", f"%{name}_stored", dtype)
    return [f"%{name}{'_stored' if lines else ''} = tensor.extract {source}", *lines]
