"""How files are brought into memory, and what modules allocate."""

from __future__ import annotations

import mmap
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig
from sartor.errors import UsageError
from sartor.planning.recipe import unsplit_recipe
from sartor.runtime import module as module_file
from sartor.runtime.driver.signature import Array, Signature, TensorSpec
from sartor.runtime.mapping import pages
from sartor.runtime.memory import allocated_bytes
from sartor.runtime.module import check_module, has_huge_pages, load_module
from sartor.runtime.segments.packing import pack
from sartor.runtime.session import Session
from sartor.tuning.networks.build_job import NetFiles, UnsplitNetwork, build_net
from tests.importing import ImportedOf

needs_moving = pytest.mark.skipif(not (has_huge_pages() and pages.CAN_MOVE), reason="this system has no huge pages")


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file counts as large."""
    monkeypatch.setattr(module_file, "_SMALL_BYTES", 0)


@needs_moving
@pytest.mark.usefixtures("large")
def test_a_large_file_is_mapped_and_then_moved_to_memory_of_its_own(model: Path, feeds: dict[str, Array]) -> None:
    with Session(model) as moved, Session(copied(model), huge_pages=False) as mapped:
        first = moved.run(None, feeds)
        assert moved.settle()
        assert not mapped.settle()
        for session in (moved, mapped):
            np.testing.assert_array_equal(session.run(None, feeds), first)


@needs_moving
@pytest.mark.usefixtures("large")
def test_a_part_is_read_from_its_file_while_it_runs(model: Path) -> None:
    """Without it, nobody gave the file's lease back, and who wrote the file waited."""
    path = copied(model)
    pack(path, {"part.vmfb": model})
    module = load_module(path, huge_pages=True)
    assert module.mapped is not None
    assert module.part("part.vmfb").mapped is module.mapped


def test_a_small_file_is_mapped_as_python_does(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_file, "_SMALL_BYTES", model.stat().st_size)
    found = load_module(model, huge_pages=True)
    assert isinstance(found.content, mmap.mmap)
    assert found.mapped is None


@needs_moving
@pytest.mark.usefixtures("large")
def test_without_huge_pages_files_stay_mapped(model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    setting = tmp_path / "enabled"
    setting.write_text("always madvise [never]\n", encoding="ascii")
    monkeypatch.setattr(module_file, "_HUGE_PAGES", setting)
    has_huge_pages.cache_clear()
    with Session(copied(model)) as session:
        assert not session.settle()
    has_huge_pages.cache_clear()


@needs_moving
@pytest.mark.usefixtures("large")
def test_a_file_that_somebody_may_write_is_read(model: Path, feeds: dict[str, Array]) -> None:
    path = copied(model)
    with path.open("r+b") as writer, Session(path) as session:
        expected = session.run(None, feeds)
        writer.truncate(100)
        np.testing.assert_array_equal(session.run(None, feeds), expected)


@pytest.mark.usefixtures("large")
def test_a_truncated_file_is_refused_however_it_is_read(model: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.vmfb"
    cut.write_bytes(model.read_bytes()[:-100])
    with pytest.raises(UsageError, match="truncated"):
        load_module(cut, huge_pages=True)
    with pytest.raises(UsageError, match="the given content is damaged, it is truncated"):
        load_module(cut.read_bytes(), huge_pages=True)
    cut.write_bytes(b"")
    with pytest.raises(UsageError, match="empty"):
        load_module(cut, huge_pages=True)


def test_a_flipped_bit_is_found_where_the_file_is_read(model: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.vmfb"
    for name, content in flipped(model):
        damaged.write_bytes(content)
        for load in (Session, lambda path: Session(path.read_bytes()), check_module):
            with pytest.raises(UsageError, match=f"is damaged, the checksum of its part '{name}' is wrong"):
                load(damaged)
    damaged.write_bytes(model.read_bytes())
    check_module(damaged)
    assert Session(damaged).manifest == Session(model).manifest


def test_an_archive_of_something_else_is_no_module(tmp_path: Path) -> None:
    other = tmp_path / "other.vmfb"
    with zipfile.ZipFile(other, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("net.onnx", bytes(100))
    for load in (Session, check_module):
        with pytest.raises(UsageError, match=r"is not an IREE module .* of something else, as of 'net\.onnx'"):
            load(other)


@needs_moving
@pytest.mark.usefixtures("large")
def test_a_flipped_bit_of_a_mapped_file_is_found_once_it_was_moved(
    model: Path, tmp_path: Path, feeds: dict[str, Array]
) -> None:
    for number, (name, content) in enumerate(flipped(model)):
        damaged = tmp_path / f"{number}.vmfb"
        damaged.write_bytes(content)
        complaint = f"is damaged, the checksum of its part '{name}' is wrong"
        if number == 0:
            with pytest.raises(UsageError, match=complaint):
                Session(damaged)
            continue
        session = Session(damaged)
        assert session.settle()
        with pytest.raises(UsageError, match=complaint):
            session.run(None, feeds)
        with pytest.raises(UsageError, match=complaint):
            Session(damaged).run(None, feeds)


def copied(model: Path) -> Path:
    """Another file of the same content, which no other session has open."""
    folder = Path(tempfile.mkdtemp(dir=model.parent))
    return Path(shutil.copy(model, folder))


def flipped(model: Path) -> Iterator[tuple[str, bytes]]:
    """The file's content with a wrong bit in each of its parts, by the part's name; the program is the first."""
    content = bytearray(model.read_bytes())
    with zipfile.ZipFile(model) as archive:
        parts = archive.infolist()
    assert len(parts) > 1
    for part in parts:
        place = part.header_offset + 200 + part.file_size // 2
        content[place] ^= 1
        yield part.filename, bytes(content)
        content[place] ^= 1


def test_inputs_and_outputs_count_and_mapped_weights_do_not(imported_of: ImportedOf, tmp_path: Path) -> None:
    imported, config = imported_of("residual"), CompileConfig(threads=1)
    image = 16 * 6 * 6 * 4
    (x,), (y,) = (
        [TensorSpec(value.name, value.dtype, value.type.shape) for value in values]
        for values in (imported.graph.inputs, imported.graph.outputs)
    )
    signature = Signature("main_graph", (x,), (y,))
    manifest = unsplit_recipe(imported, config.planning).manifest(imported, config.header)
    for weights in (None, tmp_path / "weights.irpa"):
        files = NetFiles(tmp_path / "net.vmfb", weights)
        size = build_net(UnsplitNetwork(imported.unsplit), imported.weights, Target.create("cpu"), manifest, files)
        assert size == sum(array.nbytes for array in imported.weights.values())
        found = allocated_bytes(files.module, imported.samples, signature, files.parameters)
        assert found is not None
        assert found.loaded in (0, size)
        # The input, the output, and what the first convolution hands to the second.
        assert found.peak - found.loaded >= 3 * image
        assert found.peak - found.loaded < 12 * image
