"""LeNet-5, compiled once for the tests of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import zoo
from tests.plugin.calling import call, parsed
from tests.plugin.cli.compiled import Compiled


@pytest.fixture(scope="session")
def lenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zoo.write("lenet5", tmp_path_factory.mktemp("lenet"))


@pytest.fixture(scope="session")
def compiled(lenet: Path) -> Compiled:
    names = ("lenet.vmfb", "plan.json", "tuning.db", "report.html")
    module, plan, database, report = (lenet.parent / name for name in names)
    options = ["--save-plan", plan, "--tuning-db", database, "--threads", 1, "--plans", 3, "--report", report, "--json"]
    result = call("compile-to-vmfb", lenet, "-o", module, *options)
    return Compiled(lenet, module, plan, database, parsed(result), result.stderr, report)
