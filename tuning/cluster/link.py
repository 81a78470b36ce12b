"""The way to the machines: a Dask client, which is opened again whenever the scheduler was lost."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from distributed import CancelledError, Client
from distributed.client import AllExit, ClosedClientError
from distributed.comm.addressing import get_address_host_port

from sartor.errors import UsageError
from sartor.tuning.cluster.machine import COMPILE, MEASURE, REPORT, Machine
from sartor.tuning.cluster.parcel import Answer, Parcel
from sartor.tuning.cluster.service import run_job

_LOG = logging.getLogger(__name__)
_CONNECT_SECONDS = 5.0
# Outputs of samples may be many MiB.
_RESULT_SECONDS = 300.0
_LAST_PORT = 65_535
# Larger contents do not travel within the description of a task, which Dask keeps.
_LARGE_BYTES = 1 << 20
# What asking for the end of a job raises if the scheduler, the client or its event loop is gone.
_LOST = (CancelledError, ClosedClientError, OSError, RuntimeError, TimeoutError)

Done = Callable[[Answer | None, str], None]
"""Called in some thread when a job has ended: with its answer, or None and the reason if there will be none."""


@dataclass(frozen=True)
class Scheduler:
    """Where a Dask scheduler is: its address, or the file that it wrote; one of the two.

    Raises:
        UsageError: if both or neither are given, or if the address is none.
    """

    address: str | None = None
    file: Path | None = None

    def __post_init__(self) -> None:
        if (self.address is None) == (self.file is None):
            raise UsageError("name a scheduler by its address, such as tcp://host:8786, or by its file, not both")
        if self.address is not None:
            _check_address(self.address)

    @staticmethod
    def of(text: str) -> Scheduler:
        """A scheduler by what a user names: an address has a protocol, a file has none."""
        return Scheduler(address=text) if "://" in text else Scheduler(file=Path(text))

    def __str__(self) -> str:
        return str(self.address or self.file)

    @property
    def arguments(self) -> dict[str, str]:
        """How Dask's classes name it.

        Raises:
            OSError: if the file is not there or not written to its end, which may be so for a while.
            UsageError: if it holds no address.
        """
        if self.file is None:
            return {"address": str(self.address)}
        if not self.file.is_file():
            raise FileNotFoundError(f"the scheduler's file '{self.file}' is not there")
        _check_file(self.file)
        return {"scheduler_file": str(self.file)}


def _check_file(file: Path) -> None:
    content = file.read_bytes()
    try:
        written = json.loads(content)
    except ValueError:
        if content.strip()[:1] in (b"", b"{"):
            raise OSError(f"the scheduler's file '{file}' is not complete") from None
        written = None
    address = written.get("address") if isinstance(written, dict) else None
    if not isinstance(address, str):
        raise UsageError(f"'{file}' was written by no Dask scheduler: it holds no address")
    _check_address(address)


def _check_address(address: str) -> None:
    try:
        _, port = get_address_host_port(address, strict=True)
        if not 0 < port <= _LAST_PORT:
            raise ValueError
    except (ImportError, NotImplementedError, ValueError):
        raise UsageError(
            f"'{address}' is no address of a Dask scheduler, expected one such as tcp://host:8786"
        ) from None


class Link(Protocol):
    """A way to machines. Its methods are called from one thread."""

    def machines(self) -> Mapping[str, Machine] | None:
        """Those that are there now, by worker; None if that cannot be found out."""

    def start(self, worker: str, parcel: Parcel, measures: bool, done: Done) -> None:
        """Send a job to a worker, and tell once how it ended."""

    def close(self) -> None:
        """Leave. Jobs that run are not told to end."""


class DaskLink:
    """The machines of a Dask scheduler.

    Args:
        scheduler: where it is.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        # Dask's own annotations are partial.
        self._client: Any = None
        self._addresses: dict[str, str] = {}
        self._futures: set[Any] = set()
        # Dask tells in many lines what is told here in one.
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        logging.getLogger("asyncio").addFilter(is_for_users)

    def machines(self) -> Mapping[str, Machine] | None:
        client = self._connected()
        if client is None:
            return None
        workers = _workers(client)
        if workers is None:
            return None
        machines: dict[str, Machine] = {}
        self._addresses = {}
        for address, known in workers.items():
            try:
                machine = Machine.of_json(known[REPORT])
            except (KeyError, ValueError):
                _LOG.debug("the worker %s is none of ours", address)
                continue
            machines[machine.worker] = machine
            self._addresses[machine.worker] = address
        return machines if client.status == "running" else None

    def _connected(self) -> Any:
        """The client if it has a connection, else a new one, or None."""
        if self._client is not None and self._client.status != "running":
            self.close()
        if self._client is None:
            try:
                opening: Any = Client
                self._client = opening(
                    **self._scheduler.arguments, timeout=_CONNECT_SECONDS, set_as_default=False, name="sartor"
                )
            except (OSError, TimeoutError) as error:
                _LOG.debug("no scheduler: %s", error)
        return self._client

    def start(self, worker: str, parcel: Parcel, measures: bool, done: Done) -> None:
        if self._client is None or worker not in self._addresses:
            done(None, "its worker is gone")
            return
        address = self._addresses[worker]
        try:
            self._submit(address, worker, parcel, measures, done)
        except (OSError, RuntimeError, TimeoutError, ValueError) as error:
            done(None, f"it could not be sent: {error}")

    def _submit(self, address: str, worker: str, parcel: Parcel, measures: bool, done: Done) -> None:
        client = self._client
        if client is None:
            raise RuntimeError("there is no connection")
        large = sum(map(len, parcel.arguments.contents.values())) > _LARGE_BYTES
        sent = client.scatter(parcel, workers=[address], hash=False) if large else parcel
        future = client.submit(
            run_job,
            worker,
            sent,
            measures,
            workers=[address],
            resources={MEASURE if measures else COMPILE: 1},
            pure=False,
            retries=0,
        )
        # Dask forgets what nobody holds.
        self._futures.add(future)
        future.add_done_callback(lambda ended: self._ended(ended, done))

    def _ended(self, future: Any, done: Done) -> None:
        """Tell how a job ended, whatever Dask raises: otherwise its machine would count as busy for ever."""
        self._futures.discard(future)
        answer, reason = None, "its end could not be read"
        try:
            answer, reason = _end_of(future)
        except _LOST as error:
            reason = _told(error)
        finally:
            done(answer, reason)

    def close(self) -> None:
        client, self._client = self._client, None
        self._futures.clear()
        if client is not None:
            client.close(timeout=_CONNECT_SECONDS)


def _end_of(future: Any) -> tuple[Answer | None, str]:
    """The answer of a job that has ended, or the reason why there is none."""
    if future.status == "finished":
        return future.result(timeout=_RESULT_SECONDS), ""
    raised = future.exception(timeout=_CONNECT_SECONDS) if future.status == "error" else None
    return None, _told(raised) if raised else f"it was {future.status}"


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def is_for_users(record: logging.LogRecord) -> bool:
    """Whether asyncio logs something else than how Dask stops to wait for results that are lost.

    Dask raises that in tasks which nobody asks for their end any more; asyncio then logs a traceback, although the
    loss is told by the future.
    """
    raised = record.exc_info[1] if record.exc_info else None
    return not isinstance(raised, AllExit)


def _workers(client: Any) -> Mapping[str, Any] | None:
    """What the scheduler knows of its workers, by address; None if it does not answer.

    ``Client.scheduler_info`` keeps it in the client, which asks for everything but the workers every two seconds, and
    so loses them now and then before they are returned.
    """
    if client.scheduler is None:
        return None
    try:
        known: Mapping[str, Any] = client.sync(client.scheduler.identity, n_workers=-1)["workers"]
    except (OSError, TimeoutError) as error:
        _LOG.debug("the scheduler does not answer: %s", error)
        return None
    return known
