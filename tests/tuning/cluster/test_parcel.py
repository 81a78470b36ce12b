"""Jobs travel with the files that they name, each once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sartor.tuning.cluster.parcel import FileStore, Packed, pack, unpack, with_contents


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    (tmp_path / "there").mkdir()
    return FileStore(tmp_path / "there")


def test_paths_lead_to_the_same_content_elsewhere(store: FileStore, tmp_path: Path) -> None:
    module = tmp_path / "module.vmfb"
    module.write_bytes(b"code")
    packed, files = pack({"modules": {"a": module, "b": module}, "folder": tmp_path, "new": Path("nowhere")})
    found = unpack(with_contents(packed, files), store, tmp_path / "job")
    assert found["modules"]["a"] == found["modules"]["b"] != module
    assert found["modules"]["a"].name == module.name
    assert found["modules"]["a"].read_bytes() == b"code"
    assert found["folder"] == tmp_path / "job"
    assert found["new"] == Path("nowhere")


def test_a_file_that_is_known_there_stays_here(store: FileStore, tmp_path: Path) -> None:
    module = tmp_path / "module.vmfb"
    module.write_bytes(b"code")
    packed, files = pack(module)
    whole, bare = with_contents(packed, files), with_contents(packed, files, known=packed.names)
    assert store.lacks(bare) == tuple(packed.names)
    with pytest.raises(KeyError):
        unpack(bare, store, tmp_path)
    unpack(whole, store, tmp_path)
    assert store.lacks(bare) == ()
    assert not bare.contents
    assert unpack(bare, store, tmp_path).read_bytes() == b"code"


def test_a_changed_file_travels_again(tmp_path: Path) -> None:
    module = tmp_path / "module.vmfb"
    module.write_bytes(b"code")
    before, _ = pack(module)
    module.write_bytes(b"other code")
    after, _ = pack(module)
    assert before.names.keys() != after.names.keys()


def test_a_file_that_jobs_may_have_open_is_not_rewritten(store: FileStore) -> None:
    packed = Packed(b"", {"key": "name"}, {"key": b"content"})
    store.put(packed)
    path = store.path("key", "name")
    with path.open("rb") as opened:
        before = path.stat()
        store.put(packed)
        assert path.stat() == before
        path.write_bytes(b"cont")
        store.put(packed)
        assert opened.read() == b"cont"
    assert path.read_bytes() == b"content"
    assert [*path.parent.iterdir()] == [path]


def test_no_file_leads_out_of_the_folder(store: FileStore) -> None:
    store.put(Packed(b"", {"../../key": "../../name"}, {"../../key": b"content"}))
    assert [path.relative_to(store.folder).as_posix() for path in store.folder.rglob("*") if path.is_file()] == [
        "key/name"
    ]


def test_old_files_make_room(store: FileStore) -> None:
    small = replace(store, most=10)
    small.put(Packed(b"", {"1": "a"}, {"1": b"12345678"}))
    small.make_room(Packed(b"", {"2": "b"}, {"2": b"1"}))
    assert small.lacks(Packed(b"", {"1": "a"})) == ()
    small.make_room(Packed(b"", {"2": "b"}, {"2": b"12345678"}))
    assert small.lacks(Packed(b"", {"1": "a"})) == ("1",)
