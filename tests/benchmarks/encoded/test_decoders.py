"""Decoders and products by weights in blocks beside their peers, and the memory that models take."""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import typer
from onnx import numpy_helper

from benchmarks.encoded import memory
from benchmarks.encoded.decoder import Decoder, write_gguf, write_onnx
from benchmarks.encoded.decoders import alike, continued
from benchmarks.encoded.memory import Usage, write_model
from benchmarks.encoded.products import build, time
from sartor.codegen.ir.encoding import BlockEncoding
from sartor.runtime.reference import OnnxRuntimeReference

_SMALL = Decoder(layers=2, width=64, inner=96, words=40, heads=4, groups=2, head=16)


def test_files_hold_the_same_weights(tmp_path: Path) -> None:
    write_onnx(_SMALL, tmp_path / "m.onnx", 3, 0, 0)
    write_gguf(_SMALL, tmp_path / "m.gguf", 64)
    model = onnx.load(tmp_path / "m.onnx")
    held = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    last = [each for each in model.graph.node if each.op_type == "MatMulNBits"][-1]
    expected = BlockEncoding(4, 32, 64, 40).decoded(held[last.input[1]], held[last.input[2]].reshape(40, 2))
    content = (tmp_path / "m.gguf").read_bytes()
    assert content.startswith(b"GGUF" + struct.pack("<IQ", 3, 3 + 2 * 9))
    # The weight of the last product is the last tensor: blocks of a scale and 16 bytes.
    blocks = np.frombuffer(content[-(40 * 2 * 18 + -(40 * 2 * 18) % 32) :][: 40 * 2 * 18], np.uint8).reshape(40, 2, 18)
    scales = blocks[..., :2].copy().view(np.float16).astype(np.float64)
    codes = np.concatenate([blocks[..., 2:] & 15, blocks[..., 2:] >> 4], -1).astype(np.float64)
    np.testing.assert_array_equal(((codes - 8) * scales).reshape(40, 64).T, expected)


def test_a_token_behind_others_is_the_last_of_all(tmp_path: Path) -> None:
    """Its logits change with what the caches hold, and those of a prompt are of its last token."""
    for name, tokens, past in (("prompt", 3, 0), ("short", 2, 0), ("one", 1, 2)):
        write_onnx(_SMALL, tmp_path / f"{name}.onnx", tokens, past, 0)
    ids = np.array([[5, 7, 11]])
    (whole,) = OnnxRuntimeReference(tmp_path / "prompt.onnx")({"input_ids": ids})
    (start,) = OnnxRuntimeReference(tmp_path / "short.onnx")({"input_ids": ids[:, :2]})
    caches = {f"past.{layer}.{part}": np.ones((1, 2, 2, 16), np.float32) for layer in range(2) for part in "kv"}
    one = OnnxRuntimeReference(tmp_path / "one.onnx")
    found = [
        one({"input_ids": ids[:, 2:], **{name: scale * part for name, part in caches.items()}})[0] for scale in (1, 2)
    ]
    assert whole.shape == start.shape == found[0].shape == (1, 1, 40)
    assert np.abs(whole - start).max() > 1e-3
    assert np.abs(found[0] - found[1]).max() > 1e-3


def test_greedy_tokens_are_compared_up_to_the_first_that_differs() -> None:
    """Each is the likeliest behind those before, of which a window is read."""

    def run(_: None, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        read = feeds["input_ids"][0]
        assert len(read) == 3
        return [np.eye(50)[(read.sum() + 1) % 50]]

    tokens = continued(run, 3, 5)
    assert len(tokens) == 5
    assert tokens[4] == (sum(tokens[1:4]) + 1) % 50
    assert alike(tokens, tokens) == 5
    assert alike([*tokens[:2], 50, *tokens[3:]], tokens) == 2


_MIB = 1 << 20


def test_models_are_the_same_in_both_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_WIDTH", 512)
    monkeypatch.setattr(memory, "_INNER", 1024)
    outputs = []
    for form in ("inside", "beside"):
        folder = tmp_path / form
        folder.mkdir()
        path, size = write_model(folder, 1, is_beside=form == "beside")
        assert _MIB <= size < 2 * _MIB
        assert (path.stat().st_size > size) == (form == "inside")
        outputs += OnnxRuntimeReference(path)({"x": np.ones((1, 512), np.float32)})
    inside, beside = outputs
    np.testing.assert_array_equal(inside, beside)


def test_memory_of_a_process_is_seen() -> None:
    usage, before = Usage(), Usage()
    before.see(os.getpid())
    block = np.ones(64 * _MIB, np.uint8)
    usage.see(os.getpid())
    del block
    usage.see(os.getpid())
    # Meanwhile the process may give back some of what other tests left.
    assert before.allocated + 48 < usage.allocated < before.allocated + 100
    assert usage.alone[str(os.getpid())] >= usage.at_most[str(os.getpid())] > 64


def test_products_are_built_timed_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(shape=["64,40"], rows=[2], threads=1, cpu="host", directory=tmp_path)
    capsys.readouterr()
    time(threads=1, directory=tmp_path, seconds=0.01)
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("2 rows, level 0, 1 threads: geometric mean ") for line in lines)
    (path,) = tmp_path.iterdir()
    product = pickle.loads(path.read_bytes())
    # One wrong scale of one block is seen.
    wrong = {name: array.copy() for name, array in product.weights.items()}
    scales = next(array for array in wrong.values() if array.dtype == "float32")
    scales.reshape(-1)[1] *= 2
    path.write_bytes(pickle.dumps(replace(product, weights=wrong)))
    with pytest.raises(typer.BadParameter, match="is wrong"):
        time(threads=1, directory=tmp_path, seconds=0.01)
