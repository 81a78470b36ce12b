"""Memory that compiling and running a model of weights in blocks of 4 bits takes, and the size of its file.

    python -m benchmarks.encoded.memory --megabytes 210
    python -m benchmarks.encoded.memory --megabytes 1024 --beside    # weights in a file beside the model

Memory of all processes of the command counts, each page once: what they allocated, and apart from it what they mapped
of files, which the system takes back when others need it. Results are multiples of the encoded weights.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from onnx import ModelProto, NodeProto, TensorProto, external_data_helper, helper, numpy_helper

from sartor.codegen.ir.encoding import BlockEncoding
from sartor.runtime.driver.signature import Array

app = typer.Typer(help=__doc__)
# Width and inner width of a layer, as a model of 1B has them, and how its weights are stored.
_WIDTH, _INNER, _BITS, _BLOCK = 2048, 8192, 4, 32
_MIB = 1 << 20
_PAUSE = 0.1
_RUN = """
import sys
import numpy as np
from sartor.runtime.session import Session
session = Session(sys.argv[1])
session.run(None, {"x": np.ones((1, int(sys.argv[2])), np.float32)})
print(open("/proc/self/smaps_rollup").read())
"""


@dataclass
class Usage:
    """Memory of a process and all that it began, in MiB.

    Attributes:
        allocated: the most at a time.
        mapped: the most of files at a time.
        at_most: allocated memory by process when it was most.
        alone: the most that each process allocated.
    """

    allocated: float = 0.0
    mapped: float = 0.0
    at_most: dict[str, float] = field(default_factory=dict)
    alone: dict[str, float] = field(default_factory=dict)

    def see(self, root: int) -> None:
        """Take what is in memory now into account."""
        now = dict(_processes(root))
        allocated = {name: each["Pss_Anon"] + each["Pss_Shmem"] for name, each in now.items()}
        self.mapped = max(self.mapped, sum(each["Pss_File"] for each in now.values()))
        for name, amount in allocated.items():
            self.alone[name] = max(self.alone.get(name, 0.0), amount)
        if sum(allocated.values()) > self.allocated:
            self.allocated, self.at_most = sum(allocated.values()), allocated


def _processes(root: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Memory by kind of each process that ``root`` began, and its own, in MiB."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    for process in parents:
        above = process
        while above in parents and above != root:
            above = parents[above]
        if above == root:
            try:
                yield str(process), _amounts(Path(f"/proc/{process}/smaps_rollup").read_text())
            except OSError:
                continue


def _amounts(rollup: str) -> dict[str, float]:
    rows = (line.split() for line in rollup.splitlines()[1:])
    kinds = {row[0].rstrip(":"): float(row[1]) / 1024 for row in rows if len(row) == 3}
    return {kind: kinds.get(kind, 0.0) for kind in ("Pss_Anon", "Pss_Shmem", "Pss_File")}


def write_model(folder: Path, megabytes: int, *, is_beside: bool) -> tuple[Path, int]:
    """Write a model of products by weights of about so many MiB; returns its file, and the bytes of its weights."""
    random, name, total = np.random.default_rng(0), "x", 0
    nodes: list[NodeProto] = []
    constants: list[TensorProto] = []
    path, beside = folder / "model.onnx", folder / "model.data"
    with beside.open("wb") as data:
        while total < megabytes * _MIB:
            for depth, columns in ((_WIDTH, _INNER), (_INNER, _WIDTH)):
                of, number = BlockEncoding(_BITS, _BLOCK, depth, columns), len(nodes)
                scales = (random.random(of.columns * of.blocks) * 0.01 / depth**0.5).astype(np.float32)
                parts = {f"w{number}": random.integers(0, 256, of.codes.shape, dtype=np.uint8), f"s{number}": scales}
                constants += [_stored(array, part, data, is_beside=is_beside) for part, array in parts.items()]
                total += sum(array.nbytes for array in parts.values())
                sizes: dict[str, Any] = {"K": depth, "N": columns, "bits": _BITS, "block_size": _BLOCK}
                made = [f"p{number}", f"y{number}"]
                nodes.append(helper.make_node("MatMulNBits", [name, *parts], made[:1], domain="com.microsoft", **sizes))
                nodes.append(helper.make_node("Tanh", made[:1], made[1:]))
                name = made[1]
    given, result = (helper.make_tensor_value_info(each, TensorProto.FLOAT, [1, _WIDTH]) for each in ("x", name))
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "layers", [given], [result], constants)
    model: ModelProto = helper.make_model(graph, opset_imports=versions, ir_version=9)
    path.write_bytes(model.SerializeToString())
    if not is_beside:
        beside.unlink()
    return path, total


def _stored(array: Array, name: str, data: Any, *, is_beside: bool) -> TensorProto:
    if not is_beside:
        return numpy_helper.from_array(array, name)
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    tensor = TensorProto(name=name, data_type=kind, dims=array.shape, raw_data=b"")
    external_data_helper.set_external_data(tensor, "model.data", data.tell(), array.nbytes)
    tensor.ClearField("raw_data")
    data.write(array.tobytes())
    return tensor


def compile_beside(command: list[str]) -> Usage:
    """Run a command, and look at its memory meanwhile."""
    usage = Usage()
    process = subprocess.Popen(command)
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_PAUSE):
            usage.see(process.pid)

    watcher = threading.Thread(target=watch)
    watcher.start()
    code = process.wait()
    ended.set()
    watcher.join()
    if code:
        raise typer.Exit(code)
    return usage


@app.command()
def show(
    megabytes: Annotated[int, typer.Option(help="Size of the encoded weights.")] = 210,
    beside: Annotated[bool, typer.Option(help="Whether they are in a file beside the model.")] = False,
    option: Annotated[list[str], typer.Option(help="Of the command that compiles; repeatable.")] = ["--fast"],  # noqa: B006
    folder: Annotated[Path | None, typer.Option(help="Where files are kept; none by default.")] = None,
) -> None:
    """Compile a model, and run it once."""
    directory = Path(folder or tempfile.mkdtemp(prefix="sartor-memory-"))
    directory.mkdir(exist_ok=True)
    model, size = write_model(directory, megabytes, is_beside=beside)
    module = directory / "model.vmfb"
    start = time.monotonic()
    program = shutil.which("compile-to-vmfb", path=str(Path(sys.executable).parent)) or "compile-to-vmfb"
    usage = compile_beside([program, str(model), "-o", str(module), "--threads", "1", *option])
    weights = size / _MIB
    print(f"encoded weights {weights:.0f} MiB, compiled in {time.monotonic() - start:.0f} s")
    print(f"allocated by all processes {usage.allocated:.0f} MiB, {usage.allocated / weights:.2f} times the weights")
    print(f"mapped files {usage.mapped:.0f} MiB")
    print(
        "when it was most, MiB:", ", ".join(f"{amount:.0f}" for amount in sorted(usage.at_most.values(), reverse=True))
    )
    alone = sorted(((amount, name) for name, amount in usage.alone.items()), reverse=True)
    print("the most of each process, MiB:", ", ".join(f"{amount:.0f}" for amount, _ in alone))
    over = module.stat().st_size - size
    print(
        f"file {module.stat().st_size / _MIB:.1f} MiB, {module.stat().st_size / size:.3f} times, {over / _MIB:.2f} over"
    )
    ran = subprocess.run([sys.executable, "-c", _RUN, module, str(_WIDTH)], check=True, capture_output=True, text=True)
    amounts = _amounts(ran.stdout)
    print(f"running it: allocated {amounts['Pss_Anon']:.0f} MiB, mapped {amounts['Pss_File']:.0f} MiB")
    if folder is None:
        shutil.rmtree(directory)


def _listed(amounts: Iterable[float]) -> str:
    return ", ".join(f"{amount:.0f}" for amount in sorted(amounts, reverse=True))


if __name__ == "__main__":
    app()
