"""Weights of a module: many are joined, and packed ones in a file are the same arrays."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.linking.stitching import compile_unsplit
from sartor.codegen.linking.weights import joining, parameters
from sartor.codegen.linking.weights.joining import are_many, join_weights, kept_out_of_code
from sartor.codegen.linking.weights.mapped_arrays import mapped_arrays
from sartor.codegen.linking.weights.parameters import Parameters
from sartor.codegen.mlir.iree_compiler import ir
from sartor.frontend.imported_model import ImportedModel
from sartor.tuning.networks.build_job import NetFiles, UnsplitNetwork
from tests.codegen.linking.test_stitching import TARGET, build, check, split
from tests.importing import ImportedOf, ModelFile, imported_model

GROUP = 3


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "_MANY", 1)
    monkeypatch.setattr(joining, "_GROUP", GROUP)


@pytest.mark.usefixtures("few_are_many")
@pytest.mark.parametrize("is_split", [True, False])
@pytest.mark.parametrize("name", ["lenet", "residual"])
def test_results_are_right(
    name: str, imported_of: ImportedOf, model_file: ModelFile, tmp_path: Path, *, is_split: bool
) -> None:
    imported, path = imported_of(name), tmp_path / "net.vmfb"
    build(imported, split(imported) if is_split else UnsplitNetwork(imported.unsplit), NetFiles(path, None))
    check(imported, model_file(name), path)


def chain(length: int) -> onnx.ModelProto:
    """Convolutions that are equal but for their weights."""
    draw = np.random.default_rng(0)
    weights, nodes = [], []
    for index in range(length):
        for name, shape in (("w", (4, 4, 3, 3)), ("b", (4,))):
            weights.append(numpy_helper.from_array(draw.normal(0, 0.2, shape).astype(np.float32), f"{name}{index}"))
        names = [f"v{index}", f"w{index}", f"b{index}"]
        nodes.append(helper.make_node("Conv", names, [f"v{index + 1}"], pads=[1, 1, 1, 1]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 6, 6]) for name in ("v0", f"v{length}")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture
def compiled(tmp_path: Path) -> Callable[[], tuple[ImportedModel, Path]]:
    """Compiles a chain of six convolutions unsplit."""

    def make() -> tuple[ImportedModel, Path]:
        imported = imported_model(chain(6))
        path = tmp_path / "chain.vmfb"
        compile_unsplit(imported.unsplit, imported.weights, TARGET, "", path)
        return imported, path

    return make


def code_of(module: Path) -> set[bytes]:
    return set(re.findall(rb"dispatch_\d+_conv", module.read_bytes()))


def test_few_small_weights_are_constants_in_code(compiled: Callable[[], tuple[ImportedModel, Path]]) -> None:
    assert len(code_of(compiled()[1])) == 6


@pytest.mark.usefixtures("few_are_many")
def test_layers_that_differ_in_weights_share_code(compiled: Callable[[], tuple[ImportedModel, Path]]) -> None:
    """The last one writes an output, which has no border."""
    _, module = compiled()
    assert len(code_of(module)) == 2


@pytest.mark.usefixtures("few_are_many")
def test_globals_are_joined_in_groups() -> None:
    arrays = {f"w{index}": np.full(5 + index, index, np.float32) for index in range(7)}
    declared = "\n".join(
        f"util.global private @g{name} = dense_resource<{name}> : tensor<{array.size}xf32>"
        for name, array in arrays.items()
    )
    loads = "\n".join(
        f"%{name} = util.global.load immutable @g{name} : tensor<{array.size}xf32>" for name, array in arrays.items()
    )
    body = f"util.func public @f() -> tensor<11xf32> {{ {loads}\n util.return %w6 : tensor<11xf32> }}"
    blobs = ", ".join(f'{name}: "0x04000000{array.tobytes().hex()}"' for name, array in arrays.items())
    resources = f"{{-# dialect_resources: {{ builtin: {{ {blobs} }} }} #-}}"
    module = ir.Module.parse(f"{declared}\n{body}\n{resources}", ir.Context())
    join_weights(module, {name: array for name, array in arrays.items() if name != "w1"})
    assert module.operation.verify()
    text = str(module)
    joined = re.findall(r"util.global private @(\w+).* : (\S+)", text)
    assert joined == [("gw0_and_more", "tensor<192xi8>"), ("gw1", "tensor<6xf32>"), ("gw4_and_more", "tensor<192xi8>")]
    assert text.count("flow.tensor.slice") == 6
    assert "flow.tensor.bitcast" in text


def test_small_real_numbers_are_kept_out_of_code() -> None:
    arrays: dict[str, np.ndarray] = {
        "bias": np.zeros(64, np.float32),
        "half": np.zeros(8, np.float16),
        "bfloat": np.zeros(8, ml_dtypes.bfloat16),
        "long": np.zeros(65, np.float32),
        "zero_points": np.zeros(8, np.int8),
        "mask": np.zeros(8, np.bool_),
        "scalar": np.zeros((), np.float32),
    }
    assert kept_out_of_code(arrays) == {"bias", "half", "bfloat"}


def test_weights_of_usual_networks_are_not_many() -> None:
    one = np.zeros(1, np.float32)
    assert not are_many({str(index): one for index in range(1000)})
    assert are_many({str(index): one for index in range(1001)})


ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "turned": np.arange(15, dtype=np.float32).reshape(3, 5).T,
    "none": np.zeros((3, 0), np.float16),
    "scalar": np.array(7, np.int64),
    "truth": np.array([True, False, True]),
    "half": np.arange(9).astype(ml_dtypes.bfloat16),
}


def test_arrays_are_mapped(tmp_path: Path) -> None:
    found = mapped_arrays(tmp_path / "file", ARRAYS.items())
    assert not list(tmp_path.iterdir())
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array, strict=True)
        assert not found[name].flags.writeable
        assert not found[name].flags.owndata


def test_nothing_is_left_of_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    def until_full() -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
        yield "turned", ARRAYS["turned"]
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space left"):
        mapped_arrays(tmp_path / "file", until_full())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("is_shared", [False, True])
def test_many_weights_are_kept_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_shared: bool) -> None:
    monkeypatch.setattr(parameters, "_MANY_BYTES", 70)
    kept = Parameters(is_shared=is_shared)
    for name in ("turned", "half", "turned"):
        kept.add(TensorType.of(ARRAYS[name].shape, ARRAYS[name].dtype), partial(ARRAYS.__getitem__, name))
    arrays = kept.arrays(tmp_path / "file")
    assert len(arrays) == (2 if is_shared else 3)
    np.testing.assert_array_equal(arrays["p0"], ARRAYS["turned"])
    np.testing.assert_array_equal(arrays["p1"], ARRAYS["half"])
    assert not arrays["p0"].flags.writeable
    assert kept.arrays()["p0"].flags.writeable
