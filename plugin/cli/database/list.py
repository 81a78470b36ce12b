"""``sartor db list``: list tasks with their best variants, and failures."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any

import typer

from sartor.cli.database.options import DatabaseOption, existing_database, place
from sartor.cli.options.common import JsonOption
from sartor.cli.output.messages import printable
from sartor.cli.output.terminal import milliseconds, optional, show_json, show_table
from sartor.tuning.records.measurement import Measurement, shorten
from sartor.tuning.store.store import Store
from sartor.tuning.store.tasks import TaskResult, task_results

_SHOWN_OF_MESSAGE = 300


def list_tasks(
    globs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[GLOB]...", help="Only tasks of which the key or a variant fits: '*conv2d*'."),
    ] = None,
    failures: Annotated[bool, typer.Option("--failures", help="Only what failed.")] = False,
    everywhere: Annotated[bool, typer.Option("--all", help="Also what other machines or versions measured.")] = False,
    tuning_db: DatabaseOption = None,
    json: JsonOption = False,
) -> None:
    """List tasks with their best variants and times, the slowest first, and what failed with its message."""
    with Store.open_to_read(existing_database(tuning_db)) as store:
        every = task_results(store.measurements(here_only=not everywhere))
        results = [result for result in every if _fits(result, globs or ["*"])]
    results.sort(key=lambda result: -(result.seconds or 0.0))
    failed = [failure for result in results for failure in result.failures if _names(failure, globs or ["*"])]
    if json:
        tasks = [] if failures else [_json_task(result) for result in results]
        show_json({"tasks": tasks, "failures": [_json_failure(measurement) for measurement in failed]})
        return
    if not failures:
        _show_tasks(results)
    _show_failures(failed)
    if not (failed if failures else results):
        rest = "" if everywhere else " on this machine with these versions, --all lists the rest"
        print(f"nothing like that {'failed' if failures else 'was measured'}{rest}")


def _fits(result: TaskResult, globs: Sequence[str]) -> bool:
    return any(_names(variant, globs) for variant in result.variants)


def _names(measurement: Measurement, globs: Sequence[str]) -> bool:
    key = measurement.key
    return any(fnmatchcase(name, glob) for glob in globs for name in (key.task, key.variant))


def _json_task(result: TaskResult) -> dict[str, Any]:
    key = result.variants[0].key
    return {
        **_json_place(result.variants[0]),
        "task": key.task,
        "best": result.best.key.variant if result.best else None,
        "seconds": result.seconds,
        "stock_seconds": result.stock_seconds,
        "variants": len(result.variants),
        "failures": len(result.failures),
        "under_load": len(result.disturbed),
    }


def _json_failure(failure: Measurement) -> dict[str, Any]:
    key = failure.key
    values = {"task": key.task, "variant": key.variant, "status": failure.status.value, "message": failure.message}
    return {**_json_place(failure), **values}


def _json_place(measurement: Measurement) -> dict[str, Any]:
    key = measurement.key
    return {"hardware": key.hardware, "runtime": key.runtime, "backend": key.backend, "threads": key.threads}


def _show_tasks(results: Sequence[TaskResult]) -> None:
    for where, listed in _by_place([(result.variants[0], result) for result in results]).items():
        columns = ("task", "best variant", "ms", "stock ms", "faster", "variants", "failed", "under load")
        show_table(where, columns, [_task_row(failure) for failure in listed], right=range(2, 8))


def _task_row(result: TaskResult) -> list[str]:
    ratio = result.stock_seconds / result.seconds if result.seconds and result.stock_seconds else None
    return [
        printable(result.variants[0].key.task),
        printable(result.best.key.variant) if result.best else "all failed",
        milliseconds(result.seconds),
        milliseconds(result.stock_seconds),
        optional(ratio, "{:.2f}x".format),
        str(len(result.variants)),
        str(len(result.failures)),
        str(len(result.disturbed)),
    ]


def _show_failures(failed: Sequence[Measurement]) -> None:
    for where, listed in _by_place([(measurement, measurement) for measurement in failed]).items():
        columns = ("task", "variant", "ended", "message")
        show_table(f"failures\n{where}", columns, [_failure_row(failure) for failure in listed])


def _failure_row(failure: Measurement) -> list[str]:
    message = shorten(failure.message.strip(), _SHOWN_OF_MESSAGE)
    return [printable(text) for text in (failure.key.task, failure.key.variant, failure.status.value, message)]


def _by_place(items: Sequence[tuple[Measurement, Any]]) -> dict[str, list[Any]]:
    places: dict[str, list[Any]] = {}
    for measurement, item in items:
        key = measurement.key
        places.setdefault(place(key.hardware, key.runtime, key.backend, key.threads), []).append(item)
    return dict(sorted(places.items()))
