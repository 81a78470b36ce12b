"""Round to integers by additions, in layers whose code IREE generates."""

from __future__ import annotations

import itertools
import re

_ROUND = re.compile(r"^( *)(%[\w$.-]+) = math\.roundeven (%[\w$.#-]+) : f32$", re.MULTILINE)
# All f32 of this magnitude or more are integers.
_WHOLE = 2.0**23
_ADDING = """
%nearest{n}_whole = arith.constant {whole:e} : f32
%nearest{n}_large = math.copysign %nearest{n}_whole, {x} : f32
%nearest{n}_sum = arith.addf {x}, %nearest{n}_large : f32
%nearest{n}_rounded = arith.subf %nearest{n}_sum, %nearest{n}_large : f32
%nearest{n}_signed = math.copysign %nearest{n}_rounded, {x} : f32
%nearest{n}_size = math.absf {x} : f32
%nearest{n}_small = arith.cmpf olt, %nearest{n}_size, %nearest{n}_whole : f32
{result} = arith.select %nearest{n}_small, %nearest{n}_signed, {x} : f32
"""


def round_by_adding(body: str) -> str:
    """A layer's code with ``math.roundeven`` of f32 replaced by additions, which give the same bits.

    For CPUs IREE expands the op to some 25 operations on the bits of a number; these are seven.
    """
    count = itertools.count()

    def adding(match: re.Match[str]) -> str:
        indent, result, operand = match.groups()
        lines = _ADDING.strip().format(n=next(count), x=operand, result=result, whole=_WHOLE)
        return "\n".join(indent + line for line in lines.splitlines())

    return _ROUND.sub(adding, body)
