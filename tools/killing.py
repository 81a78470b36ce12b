"""``python -m tools.killing MODEL.onnx --times 100``: kill compilations at random moments, and look at what they leave.

Compilations that share one database are killed (SIGKILL) one after another. Whatever the moment, the database still has
all that it had just before, the output is a whole file or none, and the next compilation removes what is left.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sartor.runtime.manifest import read_manifest
from sartor.tuning.records.measurement import MeasurementKey
from sartor.tuning.store.store import Store

_PROGRAM = "from sartor.cli.main import compile_main; compile_main()"
# A process that is killed in the milliseconds before its folder has a lock: later ones wait for an hour to be sure.
_UNLOCKED = re.compile(r"sartor-[0-9a-f]{16}")
_LONGEST_SECONDS = 300.0


class BrokenPromiseError(Exception):
    """What a killed compilation may not do."""


@dataclass(frozen=True)
class Scene:
    """Where compilations are killed: the model, and a folder for everything else."""

    model: Path
    root: Path

    @property
    def database(self) -> Path:
        return self.root / "tuning.db"

    @property
    def temporary(self) -> Path:
        return self.root / "tmp"

    def output(self, index: int) -> Path:
        """The module of one of the compilations that run at once."""
        return self.root / "out" / f"{index}.vmfb"

    @staticmethod
    def made(model: Path, root: Path) -> Scene:
        scene = Scene(model, root)
        scene.temporary.mkdir(parents=True)
        scene.output(0).parent.mkdir()
        return scene

    def start(self, index: int = 0) -> subprocess.Popen[bytes]:
        """Begin a compilation."""
        files = ["-o", self.output(index), "--tuning-db", self.database, "--threads", 1]
        command = [sys.executable, "-c", _PROGRAM, str(self.model), *map(str, files)]
        environment = {**os.environ, "TMPDIR": str(self.temporary)}
        return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment)

    def finish(self) -> float:
        """Compile undisturbed; returns the seconds that it took.

        Raises:
            BrokenPromiseError: if it fails, or leaves more than its output and the database.
        """
        begin = time.monotonic()
        with self.start() as process:
            _, said = process.communicate(timeout=_LONGEST_SECONDS)
        if process.returncode:
            raise BrokenPromiseError(f"the next compilation failed: {said.decode(errors='replace')}")
        if left := [*self._left()]:
            raise BrokenPromiseError(f"the next compilation left {', '.join(left)}")
        return time.monotonic() - begin

    def _left(self) -> list[str]:
        parts = [path.name for path in self.output(0).parent.iterdir() if path.suffix != ".vmfb"]
        folders = [path for path in self.temporary.iterdir() if not _is_unlocked(path)]
        return [*parts, *(folder.name for folder in folders)]

    def committed(self) -> set[MeasurementKey]:
        """What the database has; nothing if it is not there yet."""
        if not self.database.exists():
            return set()
        with Store.open_to_read(self.database) as store:
            return {measurement.key for measurement in store.measurements()}


def kill_at(scene: Scene, moments: Sequence[float]) -> None:
    """Start as many compilations at once as there are moments, and kill each at its own, in seconds from now.

    Raises:
        BrokenPromiseError: if the database lost something, or a module is not whole.
    """
    begin = time.monotonic()
    running = [(moment, index, scene.start(index)) for index, moment in enumerate(moments)]
    for moment, _, process in sorted(running, key=lambda each: each[:2]):
        time.sleep(max(0.0, begin + moment - time.monotonic()))
        before = scene.committed()
        process.kill()
        process.communicate()
        if lost := before - scene.committed():
            raise BrokenPromiseError(f"killed after {moment:.2f} s, the database lost {len(lost)} measurements: {lost}")
    for _, index, _ in running:
        if scene.output(index).exists():
            read_manifest(scene.output(index))


def _is_unlocked(folder: Path) -> bool:
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else {folder.name}
    return _UNLOCKED.fullmatch(folder.name) is not None and names <= {".sartor-lock.new"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Kill compilations and return the exit code: 1 if one broke a promise."""
    parser = argparse.ArgumentParser(prog="python -m tools.killing", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--times", type=int, default=100, help="how often compilations are killed (default: 100)")
    parser.add_argument("--at-once", type=int, default=1, help="compilations that share the database (default: 1)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        try:
            seconds = Scene.made(options.model, Path(folder, "undisturbed")).finish() * options.at_once
            for time_ in range(options.times):
                scene = Scene.made(options.model, Path(folder, str(time_)))
                moments = [draw.uniform(0.0, seconds) for _ in range(options.at_once)]
                kill_at(scene, moments)
                scene.finish()
                print(f"{time_ + 1}/{options.times}: {', '.join(f'{each:.2f}' for each in moments)} s", flush=True)
        except BrokenPromiseError as error:
            print(f"killing: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
