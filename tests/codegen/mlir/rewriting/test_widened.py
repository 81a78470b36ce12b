"""Layers of f16 become the same layers of f32, or stay as they are."""

from __future__ import annotations

import re

import numpy as np
import pytest

from sartor.codegen.ir.layer import LayerKind, Task, TensorType
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.mlir.rewriting.widened import widened

HALF, FLOAT = TensorType((4, 8), "f16"), TensorType((4, 8), "f32")
_LOOP = (
    "linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], "
    'iterator_types = ["parallel", "parallel"]}} ins(%{source} : {before}) outs(%{room} : {after}) {{\n'
    "  ^bb0(%in: {before_type}, %out: {after_type}):\n    {body}\n    linalg.yield %new : {after_type}\n  }} -> {after}"
)


def _loop(source: str, before: TensorType, after: TensorType, body: str) -> str:
    types = {"before_type": before.dtype, "after_type": after.dtype}
    return _LOOP.format(source=source, room=f"room_{after.dtype}", before=before, after=after, body=body, **types)


def _task(*lines: str, given: TensorType = HALF, result: TensorType = HALF) -> Task:
    text = "\n  ".join(
        [
            f"util.func public @layer(%arg0: {given}) -> {result} {{",
            f"%room_f16 = tensor.empty() : {HALF}",
            f"%room_f32 = tensor.empty() : {FLOAT}",
            *lines,
            f"util.return %last : {result}",
        ]
    )
    return Task("key", LayerKind.TOLERANT, f"{text}\n}}", (given,), (), (result,))


def _scaled(constant: str) -> Task:
    multiply = f"%factor = arith.constant {constant} : f16\n    %new = arith.mulf %in, %factor : f16"
    return _task(f"%last = {_loop('arg0', HALF, HALF, multiply)}")


@pytest.mark.parametrize(
    ("text", "value"),
    [("1.000980e+00", 1.0009765625), ("0xFC00", -np.inf), ("-6.550400e+04", -65504.0), ("0x0001", 2.0**-24)],
)
def test_constants_keep_all_of_their_bits(text: str, value: float) -> None:
    wide = widened(_scaled(text))
    assert isinstance(wide, Task)
    (found,) = re.findall(r"arith\.constant (\S+) : f32", wide.body)
    number = np.uint32(int(found, 16)).view(np.float32) if found.startswith("0x") else np.float32(found)
    assert number == value


def test_nothing_is_left_of_the_narrow_type() -> None:
    wide = widened(_scaled("1.5"))
    assert isinstance(wide, Task)
    assert "f16" not in wide.body
    assert (wide.inputs, wide.results) == ((FLOAT,), (FLOAT,))
    assert wide.key != _scaled("1.5").key


def test_rounding_between_operations_is_left_out() -> None:
    task = _task(
        f"%0 = {_loop('arg0', HALF, FLOAT, '%new = arith.extf %in : f16 to f32')}",
        f"%1 = {_loop('0', FLOAT, FLOAT, '%new = math.sqrt %in : f32')}",
        f"%2 = {_loop('1', FLOAT, HALF, '%new = arith.truncf %in : f32 to f16')}",
        f"%last = {_loop('2', HALF, HALF, '%new = arith.addf %in, %in : f16')}",
    )
    wide = widened(task)
    assert isinstance(wide, Task)
    assert wide.body.count("linalg.generic") == 2
    assert "bitcast" not in wide.body


@pytest.mark.parametrize("in_one_loop", [True, False])
def test_rounding_on_purpose_is_kept(in_one_loop: bool) -> None:
    widen, shorten = "%new = arith.extf %in : f16 to f32", "%new = arith.truncf %in : f32 to f16"
    both = "%short = arith.truncf %in : f32 to f16\n    %new = arith.extf %short : f16 to f32"
    between = (
        [f"%2 = {_loop('0', FLOAT, FLOAT, both)}"]
        if in_one_loop
        else [f"%1 = {_loop('0', FLOAT, HALF, shorten)}", f"%2 = {_loop('1', HALF, FLOAT, widen)}"]
    )
    found = widened(
        _task(f"%0 = {_loop('arg0', HALF, FLOAT, widen)}", *between, f"%last = {_loop('2', FLOAT, HALF, shorten)}")
    )
    assert isinstance(found, Rejected)
    assert "widens them again" in found.reason


def test_a_layer_of_f32_is_not_widened() -> None:
    found = widened(
        _task(f"%last = {_loop('arg0', FLOAT, FLOAT, '%new = math.sqrt %in : f32')}", given=FLOAT, result=FLOAT)
    )
    assert isinstance(found, Rejected)


@pytest.mark.parametrize("function", ["floor", "ceil", "roundeven", "trunc"])
def test_what_is_rounded_to_integers_stays(function: str) -> None:
    """A sum of f32 just above a half is the half in f16, and falls to the other side."""
    found = widened(_task(f"%last = {_loop('arg0', HALF, HALF, f'%new = math.{function} %in : f16')}"))
    assert isinstance(found, Rejected)
    assert "rounds them to integers" in found.reason
