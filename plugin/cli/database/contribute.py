"""``sartor db contribute``: what this machine measured, as a file of times that can become part of the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sartor.cli.database.options import DatabaseOption, existing_database
from sartor.cli.options.common import JsonOption
from sartor.cli.output.terminal import show_json
from sartor.codegen.ir.target import Target
from sartor.devices import CPU
from sartor.errors import UsageError
from sartor.publishing import check_apart, check_writable, publish
from sartor.settings.quantities import show_size
from sartor.tuning.records.hardware import host
from sartor.tuning.records.isa_level import isa_class
from sartor.tuning.search.shipped.contributed import shippable
from sartor.tuning.search.shipped.times import MisfitError, content, near_best, read
from sartor.tuning.store.sqlite.file import database_files
from sartor.tuning.store.store import Store
from sartor.workspace import workspace


def contribute(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.json.gz", help="Where to; an earlier contribution is replaced.")
    ],
    threads: Annotated[int, typer.Option(min=1, help="Number of threads that was tuned for.")] = 1,
    tuning_db: DatabaseOption = None,
    json: JsonOption = False,
) -> None:
    """Write this machine's times of variants for the package: sizes of layers, no names, no weights, no models."""
    database = existing_database(tuning_db)
    _check_target(file, database)
    with Store.open_to_read(database) as store:
        samples = near_best(shippable(store, Target.create(CPU), threads))
    with workspace() as folder:
        whole = folder / "contribution"
        whole.write_bytes(content(samples))
        publish(whole, file)
    machine, size, kinds = isa_class(host()), file.stat().st_size, len({sample.facts for sample in samples})
    if json:
        show_json(
            {
                "path": str(file),
                "machine": machine,
                "threads": threads,
                "times": len(samples),
                "kinds": kinds,
                "size_bytes": size,
            }
        )
    else:
        print(
            f"{len(samples)} times of {kinds} kinds of layers in '{file}', {show_size(size)}, for {machine} and "
            f"threads: {threads}"
        )


def _check_target(file: Path, database: Path) -> None:
    """Refuse to overwrite a file that is no earlier contribution, as it was probably named by mistake."""
    check_writable(file)
    check_apart({"the contribution": file}, [("the tuning database", path) for path in database_files(database)])
    if file.exists() and file.stat().st_size > 0:
        try:
            read(file)
        except MisfitError:
            raise UsageError(f"'{file}' is no earlier contribution and was left as it is: name another file") from None
