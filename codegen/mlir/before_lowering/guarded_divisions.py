"""Divide integers by one in place of zero, in layers whose code IREE generates for CPUs, which stop at a division by 0.

The model's own divisors are no zeros (plugin/onnx_model/rewrites/exceptional/guarded_divisions.py). But IREE computes
the elements behind the last one of an open size with masked vectors: what these read is 0, also where another layer
computed the guard.
"""

from __future__ import annotations

import itertools
import re

_DIVISION = re.compile(
    r"^(?P<indent> *)(?P<result>%[\w$.-]+) = (?P<op>arith\.(?:div[su]i|rem[su]i|ceildiv[su]i|floordivsi))"
    r" (?P<value>%[\w$.#-]+), (?P<by>%[\w$.#-]+) : (?P<kind>i\d+)$",
    re.MULTILINE,
)
_GUARDED = """
%guard{n}_zero = arith.constant 0 : {kind}
%guard{n}_one = arith.constant 1 : {kind}
%guard{n}_is_zero = arith.cmpi eq, {by}, %guard{n}_zero : {kind}
%guard{n}_by = arith.select %guard{n}_is_zero, %guard{n}_one, {by} : {kind}
{result} = {op} {value}, %guard{n}_by : {kind}
"""


def guard_divisions(body: str) -> str:
    """A layer's code with each divisor of integers replaced by one where it is zero."""
    count = itertools.count()

    def guarded(match: re.Match[str]) -> str:
        lines = _GUARDED.strip().format(n=next(count), **match.groupdict())
        return "\n".join(match["indent"] + line for line in lines.splitlines())

    return _DIVISION.sub(guarded, body)
