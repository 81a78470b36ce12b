"""``python -m tests.hostile``: read many damaged files on all processors; the exit code is 1 if there are findings.

``--number`` writes one input to a file and reads it in this process, for debugging.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.hostile.corpus import write_corpus
from tests.hostile.runner import Report, damaged, label, run
from tests.hostile.subjects import SUBJECTS

_SHOWN = 12
_SAID_EVERY = 1000


def main() -> int:
    """Read the requested inputs and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="inputs")
    parser.add_argument("--first", type=int, default=0, help="the number to begin with, to go on after a stop")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--number", type=int, help="only this input, in this process")
    parser.add_argument("--corpus", type=Path, help="where the sound files are, or are written")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hostile-") as temporary:
        corpus = arguments.corpus or Path(temporary, "corpus")
        if not (corpus / "model").exists():
            write_corpus(corpus)
        if arguments.number is not None:
            return _read_one(arguments.seed, arguments.number, corpus)
        numbers = range(arguments.first, arguments.count)
        return _read_many(arguments.seed, numbers, arguments.jobs, corpus, Path(temporary))


def _read_one(seed: int, number: int, corpus: Path) -> int:
    index, content = damaged(seed, number, corpus)
    path = Path(f"hostile-{seed}-{number}{SUBJECTS[index].suffix}")
    path.write_bytes(content)
    print(f"{label(SUBJECTS[index])}: {path}")
    SUBJECTS[index].read(path, corpus)
    return 0


def _read_many(seed: int, numbers: range, jobs: int, corpus: Path, folder: Path) -> int:
    report, begin = Report(), time.monotonic()

    def work(job: int) -> None:
        for outcome in run(seed, numbers[job::jobs], corpus, folder / f"job{job}"):
            report.add(outcome)
            if outcome.number % _SAID_EVERY == 0:
                print(f"read #{outcome.number}", flush=True)
            if outcome.finding:
                print(f"\n#{outcome.number} {label(SUBJECTS[outcome.subject])}\n{outcome.finding[-2500:]}", flush=True)

    with ThreadPoolExecutor(jobs) as threads:
        list(threads.map(work, range(jobs)))
    for line, number in sorted(report.counts.items()):
        print(f"{number:7} {line}")
    print(f"{len(numbers)} inputs in {time.monotonic() - begin:.0f} s, the slowest {report.slowest:.1f} s")
    print(f"{len(report.findings)} findings, seed {seed}: {[each.number for each in report.findings[:_SHOWN]]}")
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
