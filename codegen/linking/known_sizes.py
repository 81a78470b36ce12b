"""What sizes are in a function after IREE has planned its memory, where those of its arguments are given."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

_VALUE = r"%[\w$.]+"
_DIM = re.compile(rf"({_VALUE}) = hal\.buffer_view\.dim<%arg(\d+) : !hal\.buffer_view>\[(\d+)\]")
_CONSTANT = re.compile(rf"({_VALUE}) = arith\.constant (-?\d+) : (?:index|i\d+)")
_COMPUTED = re.compile(rf"({_VALUE}) = ([\w.]+(?: \w+(?=,))?),? ({_VALUE}(?:, {_VALUE})*)")
_COMPUTE: Mapping[str, Callable[..., int]] = {
    "arith.addi": operator.add,
    "arith.subi": operator.sub,
    "arith.muli": operator.mul,
    **{f"arith.div{kind}i": operator.floordiv for kind in "us"},
    **{f"arith.rem{kind}i": operator.mod for kind in "us"},
    **{f"arith.ceildiv{kind}i": lambda dividend, divisor: -(-dividend // divisor) for kind in "us"},
    **{f"arith.min{kind}i": min for kind in "us"},
    **{f"arith.max{kind}i": max for kind in "us"},
    **{f"arith.cmpi {kind}{name}": getattr(operator, name) for kind in "us" for name in ("lt", "le", "gt", "ge")},
    "arith.cmpi eq": operator.eq,
    "arith.cmpi ne": operator.ne,
    "arith.select": lambda condition, yes, no: yes if condition else no,
    **{f"arith.index_cast{kind}": int for kind in ("", "ui")},
    "util.align": lambda size, unit: -(-size // unit) * unit,
}


@dataclass
class KnownSizes:
    """The values of a function that are known, as its lines are read in order.

    Attributes:
        shapes: of the arguments.
        values: by name.
    """

    shapes: Sequence[Sequence[int]]
    values: dict[str, int] = field(default_factory=dict)

    def read(self, line: str) -> None:
        """Compute what a line defines, if that is a size and follows from others.

        No size is negative, so signed and unsigned operations are alike.
        """
        if dim := _DIM.search(line):
            self.values[dim[1]] = self.shapes[int(dim[2])][int(dim[3])]
        elif constant := _CONSTANT.search(line):
            self.values[constant[1]] = int(constant[2])
        elif (computed := _COMPUTED.search(line)) and (compute := _COMPUTE.get(computed[2])):
            operands = [self.values.get(name) for name in computed[3].split(", ")]
            if None not in operands:
                self.values[computed[1]] = compute(*operands)
