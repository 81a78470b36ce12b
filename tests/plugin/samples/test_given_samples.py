"""Samples: every accepted form gives the same arrays, and what does not fit is refused by name."""

from __future__ import annotations

import os
import tracemalloc
import zipfile
from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from sartor.errors import UsageError
from sartor.runtime.driver.signature import Array, TensorSpec
from sartor.samples.feeds import read_archive, read_array
from sartor.samples.given_samples import HeldSamples, Samples
from sartor.samples.sample_sets import _digest

IMAGE = TensorSpec("image", "float32", (1, 3, 4))
INDEX = TensorSpec("index", "int64", (2,))
IMAGES = np.arange(60, dtype=np.float32).reshape(5, 1, 3, 4)
INDICES = np.arange(10, dtype=np.int64).reshape(5, 2)


def _read(path: Path, *specs: TensorSpec) -> list[Mapping[str, Array]]:
    samples = Samples.open(path, specs)
    found = list(samples)
    assert len(found) == len(samples)
    return found


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("images", [IMAGES, IMAGES[:, 0]], ids=["sample axis", "batch axis"])
def test_samples_of_an_archive(tmp_path: Path, images: Array, compressed: bool) -> None:
    path = tmp_path / "samples.npz"
    (np.savez_compressed if compressed else np.savez)(path, image=images, index=INDICES)
    found = _read(path, IMAGE, INDEX)
    assert [list(each) for each in found] == [["image", "index"]] * 5
    assert np.array_equal(np.stack([each["image"] for each in found]), IMAGES)
    assert np.array_equal(np.stack([each["index"] for each in found]), INDICES)
    assert found[0]["image"].dtype == np.float32


def test_names_of_files_need_not_be_text(tmp_path: Path) -> None:
    odd, plain = tmp_path / os.fsdecode(b"a\xff.npz"), tmp_path / "a.npz"
    for path in (odd, plain):
        path.write_bytes(b"content")
    assert _digest(odd) != _digest(plain)


def test_one_sample_of_exactly_the_inputs_shapes(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", image=np.asfortranarray(IMAGES[3]), index=INDICES[3])
    (sample,) = _read(tmp_path / "one.npz", IMAGE, INDEX)
    assert np.array_equal(sample["image"], IMAGES[3])


def test_files_of_a_directory_follow_one_another_by_name(tmp_path: Path) -> None:
    np.save(tmp_path / "b.npy", IMAGES[3:])
    np.savez(tmp_path / "a.npz", image=IMAGES[:3])
    (tmp_path / "notes.txt").write_text("how these were recorded", encoding="utf-8")
    found = _read(tmp_path, IMAGE)
    assert np.array_equal(np.stack([each["image"] for each in found]), IMAGES)


@pytest.mark.parametrize("start", range(6))
def test_reading_may_start_anywhere(tmp_path: Path, start: int) -> None:
    np.savez_compressed(tmp_path / "a.npz", image=IMAGES[:2])
    np.savez(tmp_path / "b.npz", image=IMAGES[2:])
    rest = [each["image"] for each in Samples.open(tmp_path, [IMAGE]).since(start)]
    assert np.array_equal(np.array(rest).reshape(-1, 1, 3, 4), IMAGES[start:])


def test_only_one_sample_is_in_memory(tmp_path: Path) -> None:
    spec = TensorSpec("x", "float32", (1, 1 << 18))
    np.savez_compressed(tmp_path / "many.npz", x=np.ones((64, 1 << 18), np.float32))
    samples = Samples.open(tmp_path / "many.npz", [spec])
    tracemalloc.start()
    try:
        total = sum(float(sample["x"].sum()) for sample in samples)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert total == 64 << 18
    assert peak < 8 << 20


def test_bfloat16_has_no_name_in_the_files(tmp_path: Path) -> None:
    values = np.array([[1, 2], [3, 4]], ml_dtypes.bfloat16)
    np.save(tmp_path / "x.npy", values)
    found = _read(tmp_path / "x.npy", TensorSpec("x", "bfloat16", (2,)))
    assert [each["x"].tolist() for each in found] == [[1, 2], [3, 4]]
    assert found[0]["x"].dtype == ml_dtypes.bfloat16


def test_an_input_without_elements_still_counts_samples(tmp_path: Path) -> None:
    spec = TensorSpec("past", "float32", (2, 0, 3))
    np.save(tmp_path / "past.npy", np.zeros((4, 2, 0, 3), np.float32))
    assert [each["past"].shape for each in _read(tmp_path / "past.npy", spec)] == [(2, 0, 3)] * 4


REFUSED: dict[str, tuple[dict[str, Array], list[str]]] = {
    "missing": ({"image": IMAGES}, ["'index'"]),
    "unknown": ({"image": IMAGES, "index": INDICES, "extra": INDICES}, ["'extra'", "'image', 'index'"]),
    "type": ({"image": IMAGES.astype(np.float64), "index": INDICES}, ["'image'", "float32[1, 3, 4]", "float64"]),
    "shape": ({"image": IMAGES[:, :, :2], "index": INDICES}, ["'image'", "float32[1, 3, 4]", "[5, 1, 2, 4]"]),
    "counts": ({"image": IMAGES, "index": INDICES[:4]}, ["'index'", "4 samples", "5"]),
    "none": ({"image": IMAGES[:0], "index": INDICES[:0]}, ["'image'", "at least one", "[0, 1, 3, 4]"]),
    "order": ({"image": np.asfortranarray(IMAGES), "index": INDICES}, ["'image'", "Fortran"]),
    "objects": ({"image": np.array([None]), "index": INDICES}, ["Python objects"]),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_what_does_not_fit_is_named(tmp_path: Path, case: str) -> None:
    arrays, expected = REFUSED[case]
    path = tmp_path / "samples.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    with pytest.raises(UsageError) as failure:
        Samples.open(path, [IMAGE, INDEX])
    for part in [str(path), *expected]:
        assert part in str(failure.value)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused_where_they_are(tmp_path: Path, value: float) -> None:
    images = IMAGES.copy()
    images[3, 0, 1, 1] = value
    np.save(tmp_path / "x.npy", images)
    samples = Samples.open(tmp_path / "x.npy", [IMAGE])
    with pytest.raises(UsageError, match=r"x\.npy': input 'image' of sample 3"):
        list(samples)


def test_files_that_are_no_arrays(tmp_path: Path) -> None:
    text, cut, empty = tmp_path / "text.npz", tmp_path / "cut.npy", tmp_path / "folder"
    text.write_text("no archive", encoding="utf-8")
    np.save(cut, IMAGES)
    cut.write_bytes(cut.read_bytes()[:-20])
    empty.mkdir()
    with pytest.raises(UsageError, match="does not hold plain arrays"):
        Samples.open(text, [IMAGE])
    with pytest.raises(UsageError, match="ends early"):
        list(Samples.open(cut, [IMAGE]))
    with pytest.raises(UsageError, match="holds no samples"):
        Samples.open(empty, [IMAGE])
    with pytest.raises(UsageError, match="cannot be read") as refused:
        Samples.open(tmp_path / "absent.npz", [IMAGE])
    assert str(refused.value).count("absent.npz") == 1


def test_a_damaged_archive_is_refused_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, image=np.random.default_rng(0).standard_normal((50, 1, 3, 4)).astype(np.float32))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.raises(UsageError, match=r"x\.npz"):
        list(Samples.open(path, [IMAGE]))


def test_one_array_is_not_enough_for_two_inputs(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", IMAGES)
    with pytest.raises(UsageError, match="2 inputs"):
        Samples.open(tmp_path / "x.npy", [IMAGE, INDEX])


def test_held_samples_are_a_source_too() -> None:
    held = HeldSamples(tuple({"index": index} for index in INDICES))
    assert len(held) == 5
    assert [each["index"].tolist() for each in held.since(3)] == [[6, 7], [8, 9]]


def _promising(path: Path, shape: str, kind: str = "<f4") -> Path:
    """A .npy file of a hundred bytes whose header says more."""
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}".encode()
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(48))
    return path


@pytest.mark.parametrize(
    "shape", ["(1000000000000, 1, 3, 4)", "(10**30,)", "(-1, 1, 3, 4)", "-" * 9000 + "1", "-" * 11000 + "1"]
)
def test_a_header_that_promises_too_much_costs_no_memory(tmp_path: Path, shape: str) -> None:
    path = _promising(tmp_path / "x.npy", shape)
    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match="does not hold plain arrays"):
            Samples.open(path, [IMAGE])
        with pytest.raises(UsageError, match="does not hold plain arrays") as refused:
            read_array(path, IMAGE)
        assert len(str(refused.value).splitlines()) == 1
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()


def test_values_that_the_model_does_not_take_are_not_read(tmp_path: Path) -> None:
    """An archive of some kilobytes may hold gigabytes."""
    path = tmp_path / "x.npz"
    np.savez_compressed(path, image=np.zeros((1 << 22,), np.float32))
    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match="expects"):
            read_archive(path, [IMAGE])
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()


def test_archives_with_many_members_are_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for index in range(2000):
            archive.writestr(f"{index}.npy", b"")
    with pytest.raises(UsageError, match="no input"):
        Samples.open(path, [IMAGE])
