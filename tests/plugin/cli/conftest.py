"""LeNet-5, compiled once for the tests of the command line."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks import zoo
from tests.plugin.calling import call, parsed
from tests.plugin.cli.compiled import Compiled


@pytest.fixture(scope="session")
def lenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zoo.write("lenet5", tmp_path_factory.mktemp("lenet"))


@pytest.fixture(scope="session")
def compiled(lenet: Path, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    names = ("lenet.vmfb", "plan.json", "tuning.db", "report.html")
    module, plan, database, report = (lenet.parent / name for name in names)
    options = ["--save-plan", plan, "--tuning-db", database, "--threads", 1, "--plans", 3, "--report", report, "--json"]
    with _common_folder(tmp_path_factory) as common:
        answer = common / "answer.json"
        if answer.exists():
            for name in names:
                shutil.copyfile(common / name, lenet.parent / name)
        else:
            result = call("compile-to-vmfb", lenet, "-o", module, *options)
            parsed(result)
            for name in names:
                shutil.copyfile(lenet.parent / name, common / name)
            answer.write_text(json.dumps([result.stdout, result.stderr]), encoding="utf-8")
        said, progress = json.loads(answer.read_text(encoding="utf-8"))
    return Compiled(lenet, module, plan, database, json.loads(said), progress, report)


@contextmanager
def _common_folder(factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of all processes that share the tests, which one at a time looks at."""
    own = factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "common-lenet"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
