"""The commands of the pages on several shapes, devices and machines are run, all machines being this one.

What a page leaves open (addresses, inputs) is filled in, and tuning gets a budget. A command for a machine that is not
here has to say so.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import itertools
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks import zoo
from sartor.errors import DeviceError
from sartor.runtime.session import Session
from tests.devices import needs_vulkan
from tests.docs.small_network import small_network
from tests.docs.test_commands import ROOT
from tests.tuning.cluster.processes import Processes, kill, processes, wait_until

DOCS = ROOT / "docs"
PAGES = ("docs/records/one-file", "docs/records/devices", "docs/records/tuning-on-other-machines")
_BLOCK = re.compile(r"^```sh\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
_PROMPT = re.compile(r"^\w+\$ +")
_REMARK = re.compile(r"(^|\s+)(#.*)?$")
needs_dask = pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None, reason="Dask is not installed: pip install 'sartor[cluster]'"
)


def lines(page: str) -> Iterator[str]:
    """The commands of a page's blocks, without prompts and remarks."""
    text = "".join(block["text"] for block in _BLOCK.finditer((DOCS / "records" / f"{page}.md").read_text("utf-8")))
    for line in text.replace("\\\n", " ").splitlines():
        command = _REMARK.sub("", _PROMPT.sub("", line.strip().removesuffix("&")))
        if command and command != "wait":
            yield command


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Programs of this Python first, and a cache of the test's own."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.fixture
def run(tmp_path: Path, environment: dict[str, str]) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """Run a line in the test's folder; compilations tune for seconds."""

    def done(line: str) -> subprocess.CompletedProcess[str]:
        budget = " --time-budget 4" if line.startswith("compile-to-vmfb") else ""
        command = ["bash", "-euo", "pipefail", "-c", line + budget]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False
        )

    return done


Run = Callable[[str], subprocess.CompletedProcess[str]]


def outputs_of_the_model(path: Path, images: np.ndarray) -> np.ndarray:
    """What the evaluator of ONNX gives."""
    (found,) = onnx.reference.ReferenceEvaluator(str(path)).run(None, {"input": images})
    return np.asarray(found)


@needs_vulkan
def test_one_file_for_several_shapes_levels_and_devices(tmp_path: Path, run: Run) -> None:
    model = small_network()
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(model, tmp_path / "lenet5.onnx")
    for line in lines("one-file"):
        done = run(line)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
    for device, batch in itertools.product(("cpu", "vulkan"), (1, 8)):
        images = np.random.default_rng(batch).standard_normal((batch, 1, 32, 32)).astype(np.float32)
        found = Session(tmp_path / "lenet5.vmfb", device=device).run(None, {"input": images})[0]
        np.testing.assert_allclose(found, outputs_of_the_model(tmp_path / "lenet5.onnx", images), atol=1e-4)


@needs_vulkan
@pytest.mark.skipif(shutil.which("unzip") is None, reason="unzip is not installed")
def test_stock_tools_run_each_segment_of_a_file_for_two_devices(tmp_path: Path, run: Run) -> None:
    zoo.write("lenet5", tmp_path).rename(tmp_path / "model.onnx")
    for line in lines("devices"):
        if "…" in line:
            line = line.replace("--input=…", inputs_of(re.findall(r"main_graph\$\d", line)[0], tmp_path, run))
        done = run(line)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
    assert "f32" in done.stdout


def inputs_of(entry: str, folder: Path, run: Run) -> str:
    """Options that give a segment its inputs."""
    manifest = json.loads(run("sartor inspect --json model.vmfb").stdout)
    segments = manifest["segments"]
    values = {each["name"]: each["shape"] for each in manifest["inputs"]}
    values |= {each["name"]: each["shape"] for segment in segments for each in segment["outputs"]}
    (segment,) = (each for each in segments if each["entry"] == entry)
    return " ".join(f"--input={'x'.join(map(str, values[name]))}xf32=1" for name in segment["inputs"])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Processes]:
    """A scheduler, as ``dask scheduler`` starts it; its address is also in a file."""
    with processes(tmp_path) as made:
        (tmp_path / "scheduler.json").write_text(json.dumps({"address": made.address}))
        yield made


@needs_dask
def test_machines_that_measure_for_others(
    tmp_path: Path, run: Run, cluster: Processes, environment: dict[str, str]
) -> None:
    onnx.save(small_network(), tmp_path / "model.onnx")
    places = {"/shared/": f"{tmp_path}/", "tune-for laptop": f"tune-for {socket.gethostname()}"}
    places |= {f"tcp://{host}:8786": cluster.address for host in ("HOST", "laptop")}
    started: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for shown in lines("tuning-on-other-machines"):
            line = shown
            for place, here in places.items():
                line = line.replace(place, here)
            if line.startswith("sartor worker"):
                if line not in started:
                    started[line] = worker(line, tmp_path, environment)
            elif line.startswith("compile-to-vmfb"):
                check_compilation(run(line), line)
            else:
                assert line == "dask scheduler" or extras_exist(line), line
    finally:
        for each in started.values():
            kill(each)
    assert len(started) == 2


def worker(line: str, folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """A worker that has begun to work."""
    log = folder / "worker.log"
    with log.open("w") as output:
        command = shlex.split(line)
        started = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    wait_until(lambda: "working for" in log.read_text())
    return started


def check_compilation(done: subprocess.CompletedProcess[str], line: str) -> None:
    """Those for a processor or GPU that is not here say so, the others succeed."""
    if "cuda" in line or "aarch64" in line:
        assert done.returncode == DeviceError("").exit_code, done.stderr
        assert "no worker runs code for" in done.stderr
    else:
        assert done.returncode == 0, f"{line}\n{done.stderr}"


def extras_exist(line: str) -> bool:
    """Whether a line installs this package with extras that it has."""
    found = re.fullmatch(r"pip install '(\w+)\[([\w,]+)\]'", line)
    assert found, line
    return set(found[2].split(",")) <= set(importlib.metadata.metadata(found[1]).get_all("Provides-Extra") or ())
