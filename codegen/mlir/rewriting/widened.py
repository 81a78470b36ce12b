"""Layers of f16 as layers of f32, for kernels that widen what they load and round what they store.

Between loads and stores such a kernel computes in f32, so that each result is rounded once, where a layer of several
operations in f16 rounds after each. A layer that rounds on purpose, to widen again what it has rounded, stays as it is.
"""

from __future__ import annotations

import functools
import re
from dataclasses import replace

import numpy as np

from sartor.codegen.ir.layer import F16, F32, Task, TensorType, task_key
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.mlir.iree_compiler import ir, run_passes, shared_context
from sartor.codegen.mlir.operations import defining_op, nested
from sartor.codegen.mlir.snippet import first_error
from sartor.errors import CompileError

_FLOATS = (F32, F16)
_NUMBER = r"(-?\d\.\d+[eE][+-]\d+|0x[0-9A-F]{4})"
_SCALAR = re.compile(rf"arith\.constant {_NUMBER} : f16\b")
_SPLAT = re.compile(rf"dense<{_NUMBER}> : tensor<([0-9x]*)f16>")
_TYPE = re.compile(r"(?<![A-Za-z0-9_])((?:\d+x)*)f16\b")
_CONVERSION = re.compile(r"arith\.(?:extf|truncf) (%\S+) : f32 to f32")
_SAME = "arith.bitcast"
_TO_INTEGERS = frozenset(
    ("arith.fptosi", "arith.fptoui", "math.ceil", "math.floor", "math.round", "math.roundeven", "math.trunc")
)


@functools.lru_cache(maxsize=1024)
def widened(task: Task) -> Task | Rejected:
    """The layer with f32 in place of f16, without conversions between both; Rejected if that is another computation."""
    if task.stages or not any(tensor.dtype == F16 for tensor in task.inputs):
        return Rejected("it reads no f16, or is fused of several layers")
    if any(tensor.dtype not in _FLOATS for tensor in (*task.inputs, *task.weights, *task.results)):
        return Rejected("its element types are not f16 and f32")
    try:
        body = _without_conversions(_wide_text(task.body))
    except RejectionError as error:
        return Rejected(error.reason)
    inputs, weights, results = (tuple(map(_wide, tensors)) for tensors in (task.inputs, task.weights, task.results))
    return Task(task_key(body, task.key), task.kind, body, inputs, weights, results)


def _wide(tensor: TensorType) -> TensorType:
    return replace(tensor, dtype=F32)


def _wide_text(body: str) -> str:
    """The text of a layer with f32 for f16, in which conversions have become ops without effect.

    Raises:
        RejectionError: if a constant is a list of numbers in f16, or numbers are rounded to f16 only to be widened
            again, or are rounded to integers, by which a number next to a half falls to the other side.
    """
    if _rounds_in_between(body):
        raise RejectionError("it rounds numbers to f16 and widens them again, or rounds them to integers")
    text = _SCALAR.sub(lambda match: f"arith.constant {_exact(match[1])} : f32", body)
    text = _SPLAT.sub(lambda match: f"dense<{_exact(match[1])}> : tensor<{match[2]}f32>", text)
    if re.search(r"dense<[^>]*> : tensor<[0-9x]*f16>", text):
        raise RejectionError("it holds a constant of several numbers in f16")
    return _CONVERSION.sub(rf"{_SAME} \1 : f32 to f32", _TYPE.sub(r"\1f32", text))


def _exact(number: str) -> str:
    """A number of f16, as MLIR prints it, as the bits of the same number in f32: its digits are not all of it."""
    bits = number.startswith("0x")
    half = np.array(int(number, 16), np.uint16).view(np.float16) if bits else np.float16(number)
    return f"0x{int(np.float32(half).view(np.uint32)):08X}"


def _rounds_in_between(body: str) -> bool:
    """Whether a layer widens numbers that it has just rounded, as a model that rounds on purpose does, or computes
    integers of numbers that were rounded."""
    with shared_context() as context, ir.Location.unknown(context):
        module = ir.Module.parse(body)
        ops = list(nested(module.operation))
        sources = (defining_op(_before_loop(op.operands[0])) for op in ops if op.name == "arith.extf")
        is_narrowed = any(op is not None and op.name == "arith.truncf" for op in sources)
        return is_narrowed or any(op.name in _TO_INTEGERS and _is_of_half(op.operands[0]) for op in ops)


def _is_of_half(value: ir.Value) -> bool:
    """Whether a number is computed from one in f16, in the same loop; indices are computed from none."""
    pending, seen = [value], {value}
    while pending:
        current = pending.pop()
        if str(current.type) == F16:
            return True
        source = defining_op(current)
        new = set(source.operands) - seen if source is not None else set()
        seen |= new
        pending.extend(new)
    return False


def _before_loop(value: ir.Value) -> ir.Value:
    """The number that an element of a loop's operand was, if another loop of the layer has computed it."""
    if not isinstance(value, ir.BlockArgument):
        return value
    loop = value.owner.owner
    if value.arg_number >= len(loop.operands):
        return value
    operand = loop.operands[value.arg_number]
    source = defining_op(operand)
    if source is None or source.name != "linalg.generic":
        return value
    results = [*source.results]
    return list(source.regions[0].blocks[0].operations)[-1].operands[results.index(operand)]


def _without_conversions(text: str) -> str:
    """The layer without ops that have no effect, and without loops that only copy.

    Raises:
        RejectionError: if the text is no valid layer.
    """
    with shared_context() as context, ir.Location.unknown(context):
        try:
            module = ir.Module.parse(text)
        except ir.MLIRError as error:
            raise RejectionError(first_error(error)) from None
        for op in [inner for inner in nested(module.operation) if inner.name == _SAME]:
            if op.operands[0].type == op.results[0].type:
                op.results[0].replace_all_uses_with(op.operands[0])
                op.erase()
        try:
            run_passes(module, "builtin.module(util.func(canonicalize,cse))")
        except CompileError as error:
            raise RejectionError(first_error(error)) from None
        return str(module.body.operations[0].operation.get_asm(use_local_scope=True))
