"""What a plain installation has, which brings neither the compiler nor ONNX: it is played by hiding their packages."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

_HIDE = """
import sys
hidden = {"highspy", "networkx", "onnx", "onnxruntime", "onnxslim", "xgboost", "google"}

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden or name.startswith("iree.compiler"):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, Finder())
"""


def _call(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    entry = "main" if program == "sartor" else "compile_main"
    code = f"{_HIDE}from sartor.cli.main import {entry}; sys.argv[0] = '{program}'; {entry}()"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_module_is_run(tmp_path: Path) -> None:
    source, module = tmp_path / "f.mlir", tmp_path / "f.vmfb"
    source.write_text(
        "func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> {"
        " %y = arith.addf %x, %x : tensor<2xf32> return %y : tensor<2xf32> }"
    )
    flags = ["--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu"]
    tool = Path(sys.executable).parent / "iree-compile"
    subprocess.run([tool, source, "-o", module, *flags], check=True, capture_output=True)
    done = _call("sartor", "run", module, "--json")
    assert done.returncode == 0, done.stderr
    assert '"outputs"' in done.stdout


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_the_command_itself_answers(option: str) -> None:
    done = _call("sartor", option)
    assert done.returncode == 0, done.stderr
    assert "bench" not in done.stdout


@pytest.mark.parametrize(("program", "arguments"), [("compile-to-vmfb", ["m.onnx"]), ("sartor", ["inspect", "m.vmfb"])])
def test_what_compiles_says_how_to_install_it(program: str, arguments: list[str]) -> None:
    done = _call(program, *arguments)
    assert done.returncode == 2
    assert "needs highspy, iree.compiler, networkx, onnx" in done.stderr
    assert done.stderr.rstrip().endswith("which running models does not: pip install 'sartor[compile]'")
    assert "Traceback" not in done.stderr


def test_so_does_the_package() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _HIDE + "import sartor; sartor.Session; sartor.compile"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr.rstrip().endswith("which running models does not: pip install 'sartor[compile]'")


def test_a_plain_installation_asks_for_none_of_them() -> None:
    asked = [Requirement(require) for require in metadata.requires("sartor") or ()]
    plain = {each.name for each in asked if each.marker is None or each.marker.evaluate({"extra": ""})}
    assert plain == {"iree-base-runtime", "ml-dtypes", "numpy", "platformdirs", "rich", "typer"}
