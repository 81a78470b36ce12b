"""A routine is added as CONTRIBUTING.md says: its example as one file, its import, and one line in the list."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest

from sartor.tuning.records.measurement import Status
from sartor.tuning.store.store import Store
from tests.copied_package import copied_package
from tests.plugin.onnx_model.builders import FLOAT, model, node

ROOT = Path(__file__).parents[2]
DESCRIPTOR = "cpu:f32/pool.nchw4c"
ANCHOR = "    # For fused tasks.\n"
IMPORTED = """from sartor.codegen.ir.variants.formats import Algorithm, alone
from sartor.codegen.routines.iree.small_blocks import SmallBlocks
"""
# What the search knows of the task's variants, and what it would pick of them.
SEARCH = f"""
import json, sys
from pathlib import Path
from sartor.codegen.ir.variants.routine import Variant, variants_of
from sartor.codegen.routine_registry import described, families
from sartor.codegen.routines import routines_for
from sartor.codegen.ir.target import Target
from sartor.codegen.analysis.task_facts import task_facts
from sartor.frontend.import_job import run_import
from sartor.tuning.search.features import analytic_seconds, features
from sartor.tuning.search.search import VariantSearch
from sartor.tuning.search.searched import Searched
from sartor.codegen.analysis.task_bounds import ideal_seconds

(layer,) = run_import(Path(sys.argv[1]), {{}}, None).graph.layers
facts, target = task_facts(layer.task), Target.create("cpu")
answers = [each for routine in routines_for(()) for each in variants_of(routine, layer.task, target)]
variants = tuple(each.described for each in answers if isinstance(each, Variant))
search = VariantSearch([Searched("pool", facts, variants, 1)])
(own,) = (each for each in variants if each.descriptor == "{DESCRIPTOR}")
print(json.dumps({{
    "stored": described("{DESCRIPTOR}") == own,
    "families": families(),
    "slowdown": analytic_seconds(facts, own) / ideal_seconds(facts),
    "is_feature": features(facts, own)[1 + families().index("small_blocks")],
    "effort": search.effort({{"pool": ("{DESCRIPTOR}",)}}),
    "picked": search.first({{}})["pool"],
}}))
"""


@dataclass(frozen=True)
class Added:
    """A copy of the package with the routine, and a model that it applies to."""

    package: Path
    model: Path

    def run(self, script: str, *arguments: object) -> str:
        done = subprocess.run(
            [sys.executable, "-c", script, *map(str, arguments)],
            env=os.environ | {"PYTHONPATH": str(self.package)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def example() -> str:
    """The routine that CONTRIBUTING.md shows."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    return str(found)


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory) -> Added:
    folder = tmp_path_factory.mktemp("added")
    tree = copied_package(folder)
    routines = tree / "codegen" / "routines"
    (routines / "iree" / "small_blocks.py").write_text(example(), encoding="utf-8")
    listed = (routines / "__init__.py").read_text(encoding="utf-8")
    assert listed.count(ANCHOR) == 1
    (row,) = re.findall(r"`(Row\(.*SmallBlocks.*\),)`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    listed = listed.replace(ANCHOR, f"    {row}\n{ANCHOR}")
    (routines / "__init__.py").write_text(listed.replace("\nTABLE:", f"{IMPORTED}\nTABLE:"), encoding="utf-8")
    pooling = node("MaxPool", ["x"], ["y"], name="pool", kernel_shape=[3, 3], strides=[2, 2])
    onnx.save(model([pooling], [("x", (1, 16, 15, 15), FLOAT)], ["y"]), folder / "pool.onnx")
    return Added(tree / "package", folder / "pool.onnx")


def test_it_is_offered(added: Added) -> None:
    script = "from sartor.cli.main import main; main()"
    (layer,) = json.loads(added.run(script, "routines", added.model, "--json"))["layers"]
    assert DESCRIPTOR in layer["candidates"]
    listed = json.loads(added.run(script, "routines", "--json"))["routines"]
    assert {"name": "nchw4c", "type": None, "needs": None, "what": "Layout NCHW4c for poolings."} in listed


def test_it_is_compiled_and_measured(added: Added, tmp_path: Path) -> None:
    script = "from sartor.cli.main import compile_main; compile_main()"
    added.run(script, added.model, "--threads", 1, "--tuning-db", tmp_path / "tuning.db", "-o", tmp_path / "pool.vmfb")
    with Store.open(tmp_path / "tuning.db") as store:
        found = [measurement for measurement in store.measurements() if measurement.key.variant == DESCRIPTOR]
    assert [each.status for each in found] == [Status.OK]
    assert found[0].samples


def test_its_traits_reach_the_search(added: Added) -> None:
    found = json.loads(added.run(SEARCH, added.model))
    assert found["stored"]
    assert found["families"].count("small_blocks") == 1
    assert found["slowdown"] == pytest.approx(2.0)
    assert found["is_feature"] == 1.0
    assert found["effort"] == pytest.approx(1.5)
    assert DESCRIPTOR in found["picked"]
