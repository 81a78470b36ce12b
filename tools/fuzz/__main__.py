"""``python -m tools.fuzz --models 5000 -o DIR``: run a long campaign, or continue an interrupted one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from sartor.errors import SartorError
from sartor.runtime.driver.device import physical_cores
from sartor.tuning.workers.calls import open_pool
from tools.fuzz.campaign import Campaign
from tools.fuzz.schedule import MODELS, OPEN_MODELS, batch, open_batch


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign and return the exit code: 1 if it found unexplained failures, 0 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__)
    parser.add_argument("--models", type=int, default=5000, help="how many are compared (default: 5000)")
    parser.add_argument("--first", type=int, default=0, help="number of the first batch; others find others")
    parser.add_argument("--open", action="store_true", help="models with an open dimension, compiled for any size")
    parser.add_argument("--jobs", type=int, default=physical_cores(), help="worker processes")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("build/fuzz"), help="folder for failures and progress"
    )
    options = parser.parse_args(arguments)
    drawn, size = (open_batch, OPEN_MODELS) if options.open else (batch, MODELS)
    count = -(-options.models // size)
    try:
        with open_pool(options.jobs) as (pool, _):
            campaign = Campaign(pool, options.output, _tell)
            tally = campaign.run(drawn(number) for number in range(options.first, options.first + count))
    except SartorError as error:
        print(f"fuzz: {error}", file=sys.stderr)
        return error.exit_code
    for signature, number in tally.failures.most_common():
        print(f"{number:5} {signature}")
    for name, number in tally.known.most_common():
        print(f"{number:5} known: {name}")
    print(tally)
    return 1 if tally.failures else 0


def _tell(step: str, done: int, total: int) -> None:
    print(f"{done}/{total}: {step}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
