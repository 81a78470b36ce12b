"""MLIR that converts a tensor's elements to another type: narrower floats, or integers by a scale."""

from __future__ import annotations

from sartor.codegen.ir.layer import F32, TensorType
from sartor.codegen.ir.schema import QUANTISED, RANGE

_PARTS = ("scale", "zero", "inverse")


def conversion(
    value: str, before: TensorType, after: TensorType, numbers: str = "%range", room: str = "tensor.empty()"
) -> list[str]:
    """Lines that compute ``%converted`` of type ``after`` from ``value`` of type ``before``, which differ in element
    type only. ``numbers`` is the ``RANGE`` of the quantised one, and ``room`` makes a tensor of type ``after``."""
    loops = ", ".join(f"d{index}" for index in range(len(before.shape)))
    identity = f"affine_map<({loops}) -> ({loops})>"
    parallel = ", ".join(['"parallel"'] * len(before.shape))
    return [
        *(_parts(numbers) if QUANTISED in (before.dtype, after.dtype) else []),
        f"%room = {room} : {after}",
        f"%converted = linalg.generic {{indexing_maps = [{identity}, {identity}], iterator_types = [{parallel}]}} "
        f"ins({value} : {before}) outs(%room : {after}) {{",
        f"^bb0(%number: {before.dtype}, %old: {after.dtype}):",
        *(f"  {line}" for line in _element(before.dtype, after.dtype)),
        f"  linalg.yield %other : {after.dtype}",
        f"}} -> {after}",
    ]


def conversion_function(before: TensorType, after: TensorType) -> str:
    """A function that converts one tensor; if one of the types is quantised, its second argument is the range."""
    lines = "\n".join(f"  {line}" for line in conversion("%arg0", before, after))
    numbers = f", %range: {RANGE}" if QUANTISED in (before.dtype, after.dtype) else ""
    return (
        f"util.func private @convert(%arg0: {before}{numbers}) -> {after} {{\n{lines}\n"
        f"  util.return %converted : {after}\n}}"
    )


def to_f32(name: str, value: str, dtype: str) -> tuple[list[str], str]:
    """Lines that convert a value to an f32 called ``name``, and what it is called then; integers have no sign."""
    if dtype == F32:
        return [], value
    return [f"{name} = arith.{'uitofp' if dtype == QUANTISED else 'extf'} {value} : {dtype} to f32"], name


def _parts(numbers: str) -> list[str]:
    """Lines that extract the numbers of a range."""
    return [
        line
        for index, part in enumerate(_PARTS)
        for line in (
            f"%at_{part} = arith.constant {index} : index",
            f"%{part} = tensor.extract {numbers}[%at_{part}] : {RANGE}",
        )
    ]


def _element(before: str, after: str) -> list[str]:
    """Lines that convert the element ``%number`` from type ``before`` to ``after``."""
    if after == QUANTISED:
        return [*_widened("%number", before, "%real"), *_QUANTISE]
    if before == QUANTISED:
        return [*_DEQUANTISE, *_narrowed("%real", after)]
    if before == "f32":
        return _narrowed("%number", after)
    if after == "f32":
        return _widened("%number", before, "%other")
    # Neither of f16 and bf16 holds all numbers of the other.
    return [*_widened("%number", before, "%real"), *_narrowed("%real", after)]


def _widened(value: str, dtype: str, name: str) -> list[str]:
    """Lines that convert ``value`` to an f32 called ``name``."""
    zero = "arith.constant 0.0 : f32"
    return (
        [f"%nothing = {zero}", f"{name} = arith.addf {value}, %nothing : f32"]
        if dtype == "f32"
        else [f"{name} = arith.extf {value} : {dtype} to f32"]
    )


def _narrowed(value: str, dtype: str) -> list[str]:
    """Lines that convert an f32 to ``%other`` of a type no wider than f32."""
    if dtype == "f32":
        return ["%nothing = arith.constant 0.0 : f32", f"%other = arith.addf {value}, %nothing : f32"]
    return [f"%other = arith.truncf {value} : f32 to {dtype}"]


_QUANTISE = (
    "%least = arith.constant -128.0 : f32",
    "%most = arith.constant 127.0 : f32",
    "%scaled = arith.mulf %real, %inverse : f32",
    "%shifted = arith.addf %scaled, %zero : f32",
    "%above = arith.maximumf %shifted, %least : f32",
    "%inside = arith.minimumf %above, %most : f32",
    # Floats near this large number are integers, so that the last bits of the sum are the nearest integer.
    "%large = arith.constant 12582912.0 : f32",
    "%sum = arith.addf %inside, %large : f32",
    "%bits = arith.bitcast %sum : f32 to i32",
    "%other = arith.trunci %bits : i32 to i8",
)
_DEQUANTISE = (
    "%float = arith.sitofp %number : i8 to f32",
    "%distance = arith.subf %float, %zero : f32",
    "%real = arith.mulf %distance, %scale : f32",
)
