"""What travels, each file once, and where a scheduler is, as a user names it."""

from __future__ import annotations

import asyncio
import gc
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from distributed import CancelledError
from distributed.client import AllExit

from sartor.errors import UsageError
from sartor.tuning.cluster.link import DaskLink, Scheduler
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


@pytest.mark.parametrize("text", ["{}", "[]", "7", "no JSON", '{"address": 7}', '{"address": "nowhere"}'])
def test_a_file_without_an_address_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    file.write_text(text)
    with pytest.raises(UsageError, match="address"):
        _ = Scheduler.of(str(file)).arguments


@pytest.mark.parametrize("text", [None, "", '{"address": "tcp://127'])
def test_a_file_that_is_not_written_to_its_end_may_be_so_later(text: str | None, tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(OSError, match=r"scheduler's file '.*' is not"):
        _ = Scheduler.of(str(file)).arguments
    file.write_text('{"address": "tcp://127.0.0.1:8786"}')
    assert Scheduler.of(str(file)).arguments == {"scheduler_file": str(file)}


class _Lost:
    """A future that has ended, and raises when it is asked how."""

    def __init__(self, status: str, raised: BaseException) -> None:
        self.status, self.raised = status, raised

    def result(self, timeout: float) -> None:
        raise self.raised

    exception = result


@pytest.mark.parametrize("status", ["finished", "error"])
@pytest.mark.parametrize("kind", [TimeoutError, OSError, CancelledError, RuntimeError])
def test_a_future_that_is_lost_ends_its_job(status: str, kind: type[Exception]) -> None:
    told: list[tuple[object, str]] = []
    link = DaskLink(Scheduler(address="tcp://127.0.0.1:8786"))
    link._ended(_Lost(status, kind("late")), lambda *end: told.append(end))
    assert told == [(None, f"{kind.__name__}: late")]


def test_a_mistake_in_reading_an_end_is_raised_and_ends_the_job_too() -> None:
    told: list[tuple[object, str]] = []
    link = DaskLink(Scheduler(address="tcp://127.0.0.1:8786"))
    with pytest.raises(KeyError):
        link._ended(_Lost("finished", KeyError("name")), lambda *end: told.append(end))
    assert told == [(None, "its end could not be read")]


@pytest.mark.parametrize(("raised", "is_told"), [(AllExit(), False), (ValueError("wrong"), True)])
def test_how_dask_stops_waiting_is_not_told_as_an_error(
    raised: Exception, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    DaskLink(Scheduler(address="tcp://127.0.0.1:8786"))

    async def fail() -> None:
        raise raised

    async def leave_alone() -> None:
        task = asyncio.ensure_future(fail())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        del task
        gc.collect()

    with caplog.at_level(logging.ERROR, logger="asyncio"):
        asyncio.run(leave_alone())
    assert bool(caplog.records) == is_told
