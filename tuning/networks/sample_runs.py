"""Worker side: run a whole network on samples, for someone else to judge the outputs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sartor.codegen.ir.layer import NetworkValue
from sartor.errors import SartorError
from sartor.runtime.driver.signature import Array
from sartor.runtime.session import Session
from sartor.tuning.networks.net_files import NetFiles
from sartor.tuning.records.signature import net_signature
from sartor.tuning.workers.protocol import WorkerError


@dataclass(frozen=True, eq=False)
class SampleRun:
    """The outputs of one inference, in order, and the seconds that it took."""

    outputs: Sequence[Array]
    seconds: float


def run_samples(
    files: NetFiles,
    values: tuple[tuple[NetworkValue, ...], tuple[NetworkValue, ...]],
    feeds: Sequence[Mapping[str, Array]],
    device: str,
    threads: int,
) -> list[SampleRun] | WorkerError:
    """Run a network once for each of ``feeds``.

    Args:
        files: of the network.
        values: network inputs and outputs.
        feeds: by name of the input.
        device: as for ``open_device``.
        threads: as for ``open_device``.
    """
    opened = files.open_device(device, threads)
    try:
        session = Session(
            files.module,
            device=opened,
            signature=net_signature(values),
            parameters=files.parameters,
            huge_pages=False,
        )
        with session:
            return [_timed(session, feed) for feed in feeds]
    except SartorError as error:
        return WorkerError(error)


def _timed(session: Session, feeds: Mapping[str, Array]) -> SampleRun:
    begin = time.perf_counter()
    outputs = session.run(None, dict(feeds))
    # Outputs may be views of the device's memory, which goes with the session.
    return SampleRun([output.copy() for output in outputs], time.perf_counter() - begin)
