"""Makes constants of tensors that hold indices, as those that ``TopK`` sorts beside its values.

IREE 3.13 takes a dispatch without operands for a fill, which each of its readers may repeat in place of a copy. Once
copies are gone it merges equal dispatches again. Two layers that overwrite their indices, as sorts do, then share one
buffer, and the second sorts what the first has left (docs/iree-notes.md). Constants are always copied. Barriers keep
IREE from cloning small ones into the dispatches that overwrite them, which then do not compile.
"""

from __future__ import annotations

import math
import re

import numpy as np

_INDICES = re.compile(
    r"""^(?P<indent>\ *)%(?P<name>[\w$.-]+)\ =\ linalg\.generic\ \{
    indexing_maps\ =\ \[affine_map<\((?P<dims>[d\d,\ ]+)\)\ ->\ \((?P=dims)\)>\],
    \ (?P<iterators>iterator_types\ =\ \[[^\]]*\])
    \}\ outs\((?P<empty>%[\w$.#-]+)\ :\ tensor<(?P<shape>[\dx]+)x(?P<element>i32|i64)>\)\ \{\s*
    \^bb0\(%[\w$.-]+:\ (?P=element)\):\s*
    %(?P<index>[\w$.-]+)\ =\ linalg\.index\ (?P<axis>\d+)\ :\ index\s*
    %(?P<cast>[\w$.-]+)\ =\ arith\.index_cast\ %(?P=index)\ :\ index\ to\ (?P=element)\s*
    linalg\.yield\ %(?P=cast)\ :\ (?P=element)\s*
    \}\ ->\ tensor<(?P=shape)x(?P=element)>$""",
    re.MULTILINE | re.VERBOSE,
)
_CONSTANT = """
%constant_{name} = arith.constant {values} : tensor<{shape}x{element}>
%{name} = util.optimization_barrier %constant_{name} : tensor<{shape}x{element}>
"""
_SPREAD = """
%constant_{name} = arith.constant {values} : tensor<{length}x{element}>
%line_{name} = util.optimization_barrier %constant_{name} : tensor<{length}x{element}>
%{name} = linalg.generic {{indexing_maps = [affine_map<({dims}) -> (d{axis})>, affine_map<({dims}) -> ({dims})>], \
{iterators}}} ins(%line_{name} : tensor<{length}x{element}>) outs({empty} : tensor<{shape}x{element}>) {{
^bb0(%in: {element}, %out: {element}):
  linalg.yield %in : {element}
}} -> tensor<{shape}x{element}>
"""
_TYPES = {"i32": np.int32, "i64": np.int64}
_MOST_BYTES = 1 << 20
"""Larger ones are spread along the other axes by each call, so that a module holds one line of them."""


def index_constants(body: str) -> str:
    """A layer's code in which tensors of indices along one axis are constants, behind barriers to be dropped later."""
    return _INDICES.sub(_constant, body) if "linalg.index" in body else body


def _constant(found: re.Match[str]) -> str:
    shape, axis = [int(each) for each in found["shape"].split("x")], int(found["axis"])
    values = np.arange(shape[axis], dtype=_TYPES[found["element"]])
    is_large = math.prod(shape) * values.itemsize > _MOST_BYTES
    if not is_large:
        others = [each for each in range(len(shape)) if each != axis]
        values = np.broadcast_to(np.expand_dims(values, others), shape)
    form = _SPREAD if is_large else _CONSTANT
    text = form.strip().format(**found.groupdict(), length=shape[axis], values=_dense(values))
    return "\n".join(found["indent"] + each for each in text.splitlines())


def _dense(values: np.ndarray) -> str:
    return f'dense<"0x{np.ascontiguousarray(values).tobytes().hex()}">' if values.size > 1 else "dense<0>"
