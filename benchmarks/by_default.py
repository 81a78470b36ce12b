"""Models compiled without an option, each compared with ONNX Runtime by `sartor compare`.

    python -m benchmarks.by_default write build/by-default          # the models of state_models.py
    python -m benchmarks.by_default run build/by-default            # those of a folder without a result, one by one
    python -m benchmarks.by_default show

Results are kept in a JSON file, by the models' names, so that a run goes on where another ended.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import onnx
import typer

from benchmarks.state_models import STATE_MODELS

RESULTS = Path(__file__).parent / "results" / "by_default.json"

app = typer.Typer(help=__doc__)
File = Annotated[Path, typer.Option(help="The JSON file of results.")]


@dataclass(frozen=True)
class Shown:
    """What a model did.

    Attributes:
        compiles: whether it compiled.
        agrees: whether the module gives what ONNX Runtime gives.
        seconds: of the compilation.
        said: the last line of what failed, empty if nothing did.
    """

    compiles: bool
    agrees: bool
    seconds: float
    said: str = ""


@app.command()
def write(folder: Annotated[Path, typer.Argument(help="Where the models go.")]) -> None:
    """Write the models."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in STATE_MODELS.items():
        onnx.save(make(), folder / f"{name}.onnx")


@app.command()
def run(
    folder: Annotated[Path, typer.Argument(help="The ONNX files.")],
    results: File = RESULTS,
    timeout: Annotated[int, typer.Option(help="Seconds of a compilation.")] = 1800,
) -> None:
    """Compile and compare; exit code 1 if a model failed, in this run or before."""
    found = read(results)
    for model in sorted(folder.glob("*.onnx")):
        if model.stem not in found:
            found[model.stem] = shown(model, timeout)
            text = json.dumps({name: asdict(each) for name, each in sorted(found.items())}, indent=1)
            partial = results.with_suffix(".partial")
            partial.write_text(text + "\n", encoding="utf-8")
            partial.replace(results)
            print(row(model.stem, found[model.stem]), flush=True)
    raise typer.Exit(0 if all(each.agrees for each in found.values()) else 1)


@app.command()
def show(results: File = RESULTS) -> None:
    """Print the results as a table in Markdown."""
    found = read(results)
    print("| model | compiles | agrees | seconds |\n|---|---|---|---:|")
    print(*(row(*each) for each in found.items()), sep="\n")
    print(f"\n{sum(each.agrees for each in found.values())} of {len(found)} compile and agree")


def read(path: Path) -> dict[str, Shown]:
    """The results of a file; none if there is no file."""
    stored: Mapping[str, dict[str, object]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {name: Shown(**each) for name, each in stored.items()}  # type: ignore[arg-type]


def row(name: str, each: Shown) -> str:
    """A line of the table."""
    agrees = "yes" if each.agrees else each.said.replace("|", "/")
    return f"| {name} | {'yes' if each.compiles else 'no'} | {agrees} | {each.seconds:.0f} |"


def shown(model: Path, timeout: float) -> Shown:
    """What a model does."""
    module, begin = model.with_suffix(".vmfb"), time.monotonic()
    said = _failed("compile-to-vmfb", [str(model), "-o", str(module)], timeout)
    seconds = round(time.monotonic() - begin, 1)
    if said:
        return Shown(False, False, seconds, said)
    said = _failed("sartor", ["compare", str(module), "--vs", str(model)], timeout)
    return Shown(True, not said, seconds, said)


def _failed(entry: str, arguments: Sequence[str], timeout: float) -> str:
    """The last line that a command of this package says if it fails; empty if it does not."""
    command = [str(Path(sys.executable).with_name(entry)), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return f"longer than {timeout} s"
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return "" if done.returncode == 0 else (lines or ["ended"])[-1]


if __name__ == "__main__":
    app()
