"""Every command and program of the guide is run, in the order in which a reader meets them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.record.documents import documents
from tests.cache_models import Decoder
from tests.docs import test_devices_and_machines
from tests.docs.open_encoder import open_encoder
from tests.docs.small_network import small_network
from tests.plugin.detector_models import detector, image
from tests.state_models import recurrent
from tools import command_reference

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GUIDES = (
    *("quick-start", "embedding", "troubleshooting", "tuning", "precision", "continuous-integration"),
    *("sizes", "state", "targets", "exporting"),
)
# Other pages whose commands run in the folder that the guides leave.
PAGES = (
    *(f"docs/records/{name}" for name in ("cold-start", "other-cpus", "cuda", "kernels", "results")),
    *("docs/reference/conformance", "README"),
)
# Commands that take long or install, by what runs them or their parts.
_ELSEWHERE = {
    "make demo": "tests/benchmarks/test_predicted.py",
    "make test": ".ci/run",
    "pip install": ".ci/package",
    "python -m benchmarks.emulation": "tests/benchmarks/test_emulation.py",
    "python -m benchmarks.record": "tests/benchmarks/record/test_record.py",
    "python -m benchmarks.cuda": "tests/benchmarks/test_cuda.py",
    "python -m tools.cuda": "tests/codegen/kernels/cuda/test_assembled.py",
}
# What blocks of a guide import that the development environment lacks.
NEEDS = {"docs/guide/exporting": ("torch", "transformers", "onnxscript")}
# What programs of a page take for granted.
_GIVEN = {
    "docs/guide/sizes": "import numpy as np; image = np.load('image.npy')\n",
    "docs/reference/conformance": "import numpy as np; array = np.load('input.npy')\n",
}
# A network that is tuned in seconds stands for one of pages. As pages look at layers, the module has some, although the
# whole model by stock IREE may be as fast where the network is so small.
_IN_PLACE_OF = {
    "resnet50": "lenet5",
    "model.onnx -o model.vmfb": "model.onnx -o model.vmfb --pin '*=*' --time-budget 2",
    "detector.onnx -o detector.vmfb": "detector.onnx -o detector.vmfb --time-budget 2",
    "encoder.onnx -o encoder.vmfb": "encoder.onnx -o encoder.vmfb --time-budget 2",
    "stream.onnx -o stream.vmfb": "stream.onnx -o stream.vmfb --time-budget 2",
    "decoder.onnx -o decoder.vmfb": "decoder.onnx -o decoder.vmfb --time-budget 2",
    "-o build/lenet5.vmfb": "-o build/lenet5.vmfb --time-budget 2",
}
_BLOCK = re.compile(r"^```(?P<language>sh|python)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)


def _run(language: str, text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-euo", "pipefail", "-c", text] if language == "sh" else [sys.executable, "-c", text]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / "cache")}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the guide takes for granted: a model, and an input of it."""
    found = tmp_path_factory.mktemp("guide")
    onnx.save(small_network(), found / "model.onnx")
    np.save(found / "input.npy", np.ones((1, 1, 32, 32), np.float32))
    onnx.save(detector(), found / "detector.onnx")
    np.save(found / "image.npy", image(1.0))
    onnx.save(open_encoder(), found / "encoder.onnx")
    np.save(found / "ids.npy", np.zeros((3, 77), np.int64))
    onnx.save(recurrent(), found / "stream.onnx")
    onnx.save(Decoder().model(), found / "decoder.onnx")
    return found


@pytest.mark.parametrize("page", [*(f"docs/guide/{guide}" for guide in GUIDES), *PAGES])
def test_every_command_of_the_page_runs(page: str, folder: Path) -> None:
    for name in NEEDS.get(page, ()):
        pytest.importorskip(name, reason=f"the page's examples need {name}")
    if (folder / "again.vmfb").exists():
        shutil.copyfile(folder / "again.vmfb", folder / "other.vmfb")
    for language, text in programs(page):
        done = _run(language, text, folder)
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"


def programs(page: str) -> Iterator[tuple[str, str]]:
    """Language and text of a page's blocks, as they are run."""
    for block in _BLOCK.finditer((ROOT / f"{page}.md").read_text(encoding="utf-8")):
        lines = block["text"].splitlines(keepends=True)
        text = "".join(line for line in lines if not any(each in line for each in _ELSEWHERE))
        for name, small in _IN_PLACE_OF.items():
            text = text.replace(name, small)
        yield block["language"], _GIVEN.get(page, "") + text if block["language"] == "python" else text


@pytest.mark.parametrize("test", _ELSEWHERE.values())
def test_commands_that_take_long_have_tests_of_their_own(test: str) -> None:
    assert (ROOT / test).exists()


def test_no_page_with_commands_is_left_out() -> None:
    shown = {path for path in documents(ROOT) if _BLOCK.search(path.read_text(encoding="utf-8"))}
    tested = {f"docs/guide/{guide}" for guide in GUIDES} | {*PAGES, *test_devices_and_machines.PAGES}
    assert {path.relative_to(ROOT).with_suffix("").as_posix() for path in shown} <= tested
    assert {path.stem for path in (DOCS / "guide").glob("*.md")} == set(GUIDES)


def test_the_reference_has_every_command() -> None:
    text = command_reference.on_page_markdown(command_reference.MARK)
    for name in ("compile", "run", "bench", "compare", "inspect", "routines", "doctor", "db export"):
        assert f"## `sartor {name}`" in text
    assert "--memory-limit" in text
    assert "| `time_budget` | `--time-budget` | Time that compiling may take" in command_reference.settings_table()


def test_pages_without_the_mark_stay_as_they_are() -> None:
    assert command_reference.on_page_markdown("# Title", page=None) == "# Title"
