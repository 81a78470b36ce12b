"""A worker whose machine is said to be another: ``python -m tests.tuning.cluster.worker_program SCHEDULER CHANGES``."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

from sartor.tuning.cluster.link import Scheduler
from sartor.tuning.cluster.machine import this_machine
from sartor.tuning.cluster.server import serve

if __name__ == "__main__":
    scheduler, changes = sys.argv[1:]
    given = json.loads(changes)
    machine = this_machine(given.pop("compilers", 0))
    models = given.pop("models", None)
    hardware = machine.hardware if models is None else replace(machine.hardware, models=tuple(models))
    serve(Scheduler.of(scheduler), replace(machine, hardware=hardware, **given), print)
