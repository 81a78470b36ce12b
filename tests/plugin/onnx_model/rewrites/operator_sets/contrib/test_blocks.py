"""Weights in blocks that models have in other forms: dequantised, in another order of rows, looked up."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

from sartor.codegen.ir.encoding import BlockEncoding, from_planes, packed
from sartor.errors import UnsupportedModelError
from sartor.onnx_model.rewrites.operator_sets.contrib.blocks.narrow_codes import narrowed
from sartor.reference.trusted.oracles.call import Call
from sartor.reference.trusted.oracles.table import definition_of, deviates
from tests.plugin.onnx_model.builders import FLOAT, INT64, MS, Array, model, node, relative_error, run, weights
from tests.plugin.onnx_model.conftest import Prepare

_K, _N = 64, 24
_ENCODED = "MatMulNBits"
_LIMITS = {"int4": (-8, 8), "uint4": (0, 16), "int8": (-128, 128), "int2": (-2, 2), "uint2": (0, 4)}


def _integers(dtype: Any, *shape: int, seed: int = 0) -> Array:
    low, high = _LIMITS[np.dtype(dtype).name]
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4, np.int8])
@pytest.mark.parametrize("has_points", [False, True])
@pytest.mark.parametrize("is_turned", [False, True])
def test_dequantised_blocks_stay(dtype: Any, prepare_quickly: Prepare, *, has_points: bool, is_turned: bool) -> None:
    shape, blocks = ((_N, _K), (_N, _K // 16)) if is_turned else ((_K, _N), (_K // 16, _N))
    constants = {"q": _integers(dtype, *shape), "s": np.abs(weights(*blocks)) + 0.1, "b": weights(_N)}
    if has_points:
        constants["z"] = _integers(dtype, *blocks, seed=1)
    read = ["q", "s", *(["z"] if has_points else [])]
    nodes = [node("DequantizeLinear", read, ["w"], axis=1 if is_turned else 0, block_size=16)]
    nodes.append(node("Gemm", ["x", "w", "b"], ["y"], transB=int(is_turned)))
    built = model(nodes, [("x", (3, _K), FLOAT)], ["y"], constants, opset=21)
    built.ir_version = 10
    prepared = prepare_quickly(built).model
    assert [each.op_type for each in prepared.graph.node] == [_ENCODED, "Add"]
    rows = weights(3, _K, seed=3)
    found = run(prepared, {"x": rows})["y"]
    values = constants["q"].astype(np.float64)
    axis = 1 if is_turned else 0
    if has_points:
        values -= np.repeat(constants["z"].astype(np.float64), 16, axis)
    values *= np.repeat(constants["s"].astype(np.float64), 16, axis)
    expected = rows.astype(np.float64) @ (values.T if is_turned else values) + constants["b"]
    assert relative_error(found, expected.astype(np.float32)) < 1e-5


@pytest.mark.parametrize("has_bias", [False, True])
def test_products_of_halves_stay_between_casts(prepare_quickly: Prepare, *, has_bias: bool) -> None:
    scales = (np.abs(weights(_K // 16, _N)) + 0.1).astype(np.float16)
    constants = {"q": _integers(ml_dtypes.int4, _K, _N), "s": scales, "b": weights(_N).astype(np.float16)}
    nodes = [node("DequantizeLinear", ["q", "s"], ["w"], axis=0, block_size=16)]
    nodes.append(node("Gemm", ["x", "w", *(["b"] if has_bias else [])], ["y"]))
    built = model(nodes, [("x", (3, _K), TensorProto.FLOAT16)], [("y", (3, _N), TensorProto.FLOAT16)], constants, 21)
    built.ir_version = 10
    prepared = prepare_quickly(built).model
    assert [each.op_type for each in prepared.graph.node] == ["Cast", _ENCODED, "Cast", *(["Add"] if has_bias else [])]
    rows = weights(3, _K, seed=3).astype(np.float16)
    values = constants["q"].astype(np.float64) * np.repeat(scales.astype(np.float64), 16, 0)
    expected = rows @ values + (constants["b"] if has_bias else 0)
    found = run(prepared, {"x": rows})["y"].astype(np.float32)
    assert relative_error(found, expected.astype(np.float32)) < 2e-3


@pytest.mark.parametrize("dtype", [ml_dtypes.int2, ml_dtypes.uint2])
def test_two_bits_stay(dtype: Any, prepare_quickly: Prepare) -> None:
    constants = {"q": _integers(dtype, _K, _N), "s": np.abs(weights(_K // 16, _N)) + 0.1}
    nodes = [node("DequantizeLinear", ["q", "s"], ["w"], axis=0, block_size=16), node("MatMul", ["x", "w"], ["y"])]
    built = model(nodes, [("x", (3, _K), FLOAT)], ["y"], constants, opset=25)
    built.ir_version = 13
    prepared = prepare_quickly(built).model
    assert [each.op_type for each in prepared.graph.node] == [_ENCODED]
    rows = weights(3, _K, seed=3)
    values = constants["q"].astype(np.float64) * np.repeat(constants["s"].astype(np.float64), 16, 0)
    assert relative_error(run(prepared, {"x": rows})["y"], (rows @ values).astype(np.float32)) < 1e-5


def test_a_scale_for_each_column_stays(prepare_quickly: Prepare) -> None:
    constants = {"q": _integers(ml_dtypes.int4, 96, _N), "s": np.abs(weights(_N)) + 0.1}
    nodes = [node("DequantizeLinear", ["q", "s"], ["w"], axis=1), node("MatMul", ["x", "w"], ["y"])]
    built = model(nodes, [("x", (2, 3, 96), FLOAT)], ["y"], constants, opset=21)
    built.ir_version = 10
    prepared = prepare_quickly(built).model
    assert [each.op_type for each in prepared.graph.node] == [_ENCODED]
    rows = weights(2, 3, 96, seed=3)
    expected = rows @ (constants["q"].astype(np.float32) * constants["s"])
    assert relative_error(run(prepared, {"x": rows})["y"], expected) < 1e-5


def test_blocks_across_the_depth_are_dequantised(prepare_quickly: Prepare) -> None:
    constants = {"q": _integers(ml_dtypes.int4, _K, 32), "s": np.abs(weights(_K, 2)) + 0.1}
    nodes = [node("DequantizeLinear", ["q", "s"], ["w"], axis=1, block_size=16), node("MatMul", ["x", "w"], ["y"])]
    built = model(nodes, [("x", (3, _K), FLOAT)], ["y"], constants, opset=21)
    built.ir_version = 10
    prepared = prepare_quickly(built).model
    assert _ENCODED not in {each.op_type for each in prepared.graph.node}


def _reordered(groups: Array) -> Any:
    constants = {
        "w": np.random.default_rng(0).integers(0, 256, (_N, 4, 8), dtype=np.uint8),
        "s": np.abs(weights(_N * 4)) + 0.1,
        "z": np.random.default_rng(1).integers(0, 256, _N * 2, dtype=np.uint8),
        "g": groups.astype(np.int32),
    }
    product = node(
        _ENCODED, ["x", "w", "s", "z", "g"], ["y"], domain=MS, K=_K, N=_N, bits=4, block_size=16, accuracy_level=0
    )
    return constants, model([product], [("x", (3, _K), FLOAT)], ["y"], constants)


_SHUFFLED = np.random.default_rng(2).permutation(np.arange(_K) // 16)
_UNEVEN = np.random.default_rng(2).integers(0, 4, _K)


@pytest.mark.parametrize(
    "groups", [_SHUFFLED, _UNEVEN, np.minimum(_UNEVEN, 1) * 3], ids=["even", "uneven", "two_empty"]
)
def test_rows_in_another_order_stay(groups: Array, prepare_quickly: Prepare) -> None:
    constants, built = _reordered(groups)
    prepared = prepare_quickly(built).model
    assert _ENCODED in {each.op_type for each in prepared.graph.node}
    codes = np.stack([constants["w"] & 15, constants["w"] >> 4], -1).reshape(_N, _K).astype(np.float64)
    points = np.stack([constants["z"] & 15, constants["z"] >> 4], -1).reshape(_N, 4).astype(np.float64)
    values = (codes - points[:, groups]) * constants["s"].reshape(_N, 4)[:, groups]
    rows = weights(3, _K, seed=3)
    expected = (rows @ values.T).astype(np.float32)
    assert relative_error(run(prepared, {"x": rows})["y"], expected) < 1e-5
    # What fills blocks up multiplies zeros, also where the first row is infinite.
    rows[0, 0] = np.inf
    with np.errstate(invalid="ignore"):
        infinite = (rows[:1] @ values.T).astype(np.float32)
    np.testing.assert_array_equal(run(prepared, {"x": rows})["y"][:1], infinite)


@pytest.mark.parametrize("groups", [np.full(_K, 4), np.full(_K, -1), np.zeros(_K - 1)])
def test_groups_out_of_range_are_refused(groups: Array, prepare_quickly: Prepare) -> None:
    with pytest.raises(UnsupportedModelError, match=r"'matmulnbits'.*group indices"):
        prepare_quickly(_reordered(groups)[1])


@pytest.mark.parametrize("bits", [4, 2])
@pytest.mark.parametrize("has_points", [False, True])
def test_rows_are_looked_up_in_few_bits(bits: int, prepare_quickly: Prepare, *, has_points: bool) -> None:
    random = np.random.default_rng(0)
    constants: dict[str, Array] = {
        "w": random.integers(0, 256, (40, 32 * bits // 8), dtype=np.uint8),
        "s": np.abs(weights(40, 2)) + 0.1,
        "z": random.integers(0, 256, (40, -(-2 * bits // 8)), dtype=np.uint8),
    }
    read = ["w", "i", "s", *(["z"] if has_points else [])]
    look_up = node("GatherBlockQuantized", read, ["y"], domain=MS, bits=bits, block_size=16, quantize_axis=1)
    built = model([look_up], [("i", (2, 3), INT64)], ["y"], constants)
    prepared = prepare_quickly(built).model
    assert all(len(initializer.raw_data) <= 40 * 32 * bits // 8 for initializer in prepared.graph.initializer)
    shifts = np.arange(0, 8, bits)
    codes = (constants["w"][..., None] >> shifts & (1 << bits) - 1).reshape(40, 32).astype(np.float32)
    points = (constants["z"][..., None] >> shifts & (1 << bits) - 1).reshape(40, -1)[:, :2].astype(np.float32)
    origin = np.repeat(points, 16, 1) if has_points else np.float32(1 << (bits - 1))
    table = (codes - origin) * np.repeat(constants["s"], 16, 1)
    indices = random.integers(0, 40, (2, 3))
    assert np.array_equal(run(prepared, {"i": indices})["y"], table[indices])


@pytest.mark.parametrize("bits", [3, 5, 6, 7])
@pytest.mark.parametrize("points", ["", "packed", "real"])
def test_codes_across_bytes_become_whole_parts_of_bytes(bits: int, points: str, prepare_quickly: Prepare) -> None:
    depth, columns, blocks = 60, 9, 4
    random = np.random.default_rng(bits)
    constants: dict[str, Array] = {
        "w": random.integers(0, 256, (columns, blocks, 16 * bits // 8), dtype=np.uint8),
        "s": np.abs(weights(columns, blocks)) + 0.1,
    }
    origin: Array = np.full((columns, blocks), 2.0 ** (bits - 1))
    if points == "packed":
        constants["z"] = random.integers(0, 256, (columns, -(-blocks * bits // 8)), dtype=np.uint8)
        origin = _digits(constants["z"], bits)[:, :blocks]
    elif points == "real":
        constants["z"] = origin = weights(columns, blocks, seed=2)
    product = node(_ENCODED, ["x", *constants], ["y"], domain=MS, K=depth, N=columns, bits=bits, block_size=16)
    built = model([product], [("x", (3, depth), FLOAT)], ["y"], constants)
    prepared = prepare_quickly(built).model
    assert [each.op_type for each in prepared.graph.node] == [_ENCODED]
    codes = _digits(constants["w"], bits)
    values = ((codes - origin[..., None]) * constants["s"][..., None]).reshape(columns, -1)[:, :depth]
    rows = weights(3, depth, seed=3)
    expected = (rows @ values.T).astype(np.float32)
    assert relative_error(run(prepared, {"x": rows})["y"], expected) < 1e-5
    # ONNX Runtime has no kernel for them, so that a definition vouches.
    compute = definition_of(product)
    assert compute is not None
    assert deviates(product, [])
    assert relative_error(compute(Call(product, [rows, *constants.values()], 1))[0], expected) < 1e-6


def _digits(data: Array, bits: int) -> Array:
    """Integers of some bits that fill the last axis, digit by digit."""
    count = data.shape[-1] * 8 // bits
    digits = np.unpackbits(data, axis=-1, bitorder="little")[..., : count * bits]
    found: Array = digits.reshape(*data.shape[:-1], count, bits) @ (1 << np.arange(bits))
    return found


@pytest.mark.parametrize("bits", [1, 9])
def test_other_numbers_of_bits_are_refused(bits: int, prepare_quickly: Prepare) -> None:
    constants = {"w": np.zeros((2, 1, 2 * bits), np.uint8), "s": np.ones((2, 1), np.float32)}
    product = node(_ENCODED, ["x", *constants], ["y"], domain=MS, K=16, N=2, bits=bits, block_size=16)
    with pytest.raises(UnsupportedModelError, match=rf"'matmulnbits'.*{bits} bits; 2 to 8 were expected"):
        prepare_quickly(model([product], [("x", (3, 16), FLOAT)], ["y"], constants))


_LOOKED_UP = "GatherBlockQuantized"


@pytest.mark.parametrize("kind", ["int4", "uint4", "bytes", "halves", "turned"])
@pytest.mark.parametrize("has_points", [False, True])
def test_other_tables_are_looked_up(kind: str, prepare_quickly: Prepare, *, has_points: bool) -> None:
    random, axis = np.random.default_rng(0), 0 if kind == "turned" else 1
    scales = np.abs(weights(48, 2) if axis else weights(3, 32)) + 0.1
    shape: tuple[int, ...] = (48, 32)
    if kind in ("int4", "uint4", "turned"):
        dtype = ml_dtypes.uint4 if kind == "uint4" else ml_dtypes.int4
        table, points = _integers(dtype, *shape), _integers(dtype, *scales.shape, seed=1)
        codes, origin = table.astype(np.float64), points.astype(np.float64) if has_points else np.zeros(scales.shape)
    else:
        table = random.integers(0, 256, shape, dtype=np.uint8)
        points = random.integers(0, 256, scales.shape, dtype=np.uint8)
        codes, origin = table.astype(np.float64), points if has_points else np.full(scales.shape, 128)
    scales = scales.astype(np.float16 if kind == "halves" else np.float32)
    constants = {"w": table, "s": scales, **({"z": points} if has_points else {})}
    bits = {} if kind in ("int4", "uint4", "turned") else {"bits": 8}
    read = ["w", "i", "s", *(["z"] if has_points else [])]
    look_up = node(_LOOKED_UP, read, ["y"], domain=MS, block_size=16, quantize_axis=axis, gather_axis=0, **bits)
    element = TensorProto.FLOAT16 if kind == "halves" else FLOAT
    built = model([look_up], [("i", (2, 3), INT64)], [("y", (2, 3, 32), element)], constants, opset=21)
    built.ir_version = 10
    prepared = prepare_quickly(built).model
    assert [each.op_type for each in prepared.graph.node] == ["Gather" if kind == "turned" else _LOOKED_UP]
    values = (codes - np.repeat(origin, 16, axis)) * np.repeat(scales.astype(np.float64), 16, axis)
    indices = random.integers(-48, 48, (2, 3))
    found = run(prepared, {"i": indices})["y"].astype(np.float32)
    assert relative_error(found, values[indices].astype(np.float32)) < (1e-3 if kind == "halves" else 1e-6)


def test_a_table_that_does_not_fit_its_scales_is_refused(prepare_quickly: Prepare) -> None:
    constants = {"w": np.zeros((8, 16), np.uint8), "s": np.ones((8, 3), np.float32)}
    look_up = node(_LOOKED_UP, ["w", "i", "s"], ["y"], domain=MS, block_size=16, quantize_axis=1, gather_axis=0)
    with pytest.raises(UnsupportedModelError, match=r"'gatherblockquantized'.*another shape than \(8, 2\)"):
        prepare_quickly(model([look_up], [("i", (2,), INT64)], ["y"], constants))


@pytest.mark.parametrize("has_points", [False, True])
def test_codes_that_need_three_bits_are_stored_so(*, has_points: bool) -> None:
    of, random = BlockEncoding(4, 32, 64, 5), np.random.default_rng(0)
    lowest = 0 if has_points else 4
    numbers = random.integers(lowest, lowest + 8, (5, 2, 32), dtype=np.uint8)
    points = random.integers(0, 8, (5, 2), dtype=np.uint8) if has_points else None
    found = narrowed(of, packed(numbers, 4), points)
    assert found is not None
    narrow, codes = found
    assert (narrow.bits, codes.nbytes) == (3, 5 * 64 * 3 // 8)
    assert np.array_equal(from_planes(codes), numbers - lowest)
    scales = np.ones((5, 2), np.float32)
    right = of.decoded(packed(numbers, 4), scales, points)
    assert np.array_equal(narrow.decoded(codes, scales, points), right)
    # One code that needs four bits keeps all.
    for wrong in (lowest + 8, *([] if has_points else [3, 12])):
        numbers[-1, -1, -1] = wrong
        assert narrowed(of, packed(numbers, 4), points) is None
