"""The user's samples for a network of any size: those of the nearest sizes are cut or repeated to each size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sartor.codegen.ir.layer import NetworkValue, TensorType
from sartor.codegen.ir.sizes.dims import Dim, Extent, Symbol
from sartor.errors import UsageError
from sartor.samples.sized_samples import SizedSamples

_TOKENS = Symbol("tokens", 1, 64)
_DIMS: list[Dim] = [1, Extent((_TOKENS,))]
_INPUTS = tuple(NetworkValue(name, TensorType.of_dims(_DIMS, "i64"), "int64") for name in ("ids", "mask"))


def _stored(folder: Path, *lengths: int, masked: int = 0) -> Path:
    for length in lengths:
        ids, mask = np.arange(length)[None] + 100 * length, np.ones((1, masked or length), np.int64)
        np.savez(folder / f"{length:03}.npz", ids=ids, mask=mask)
    return folder


def _at(folder: Path, tokens: int) -> SizedSamples:
    return SizedSamples.open(folder, _INPUTS, {value.name: (1, tokens) for value in _INPUTS})


def test_a_sample_is_cut_or_repeated_to_the_size(tmp_path: Path) -> None:
    folder = _stored(tmp_path, 3)
    for tokens, expected in ((2, [300, 301]), (3, [300, 301, 302]), (7, [300, 301, 302, 300, 301, 302, 300])):
        (sample,) = _at(folder, tokens).since(0)
        assert sample["ids"].tolist() == [expected]
        assert sample["mask"].shape == (1, tokens)


def test_samples_of_the_nearest_sizes_are_taken(tmp_path: Path) -> None:
    samples = _at(_stored(tmp_path, *range(1, 13)), 10)
    assert len(samples) == 8
    assert [int(each["ids"][0, 0]) // 100 for each in samples.since(0)] == list(range(5, 13))
    assert [int(each["ids"][0, 0]) // 100 for each in samples.since(6)] == [11, 12]


def test_samples_whose_sizes_the_network_does_not_take_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"sample 1 of '.*': dimension 1 of input 'ids' has the size 65, but"):
        _at(_stored(tmp_path, 3, 65), 4)
    (tmp_path / "065.npz").unlink()
    with pytest.raises(UsageError, match=r"'tokens' is 3 in dimension 1 of input 'ids' and 2 in"):
        _at(_stored(tmp_path, 3, masked=2), 4)
