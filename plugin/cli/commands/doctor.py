"""``sartor doctor``: show what this machine offers, what is missing, and whether it is quiet enough to tune."""

from __future__ import annotations

from dataclasses import asdict

import typer

from sartor.cli.options.common import JsonOption
from sartor.cli.output.terminal import show_json, show_table
from sartor.doctor.examination import examine
from sartor.doctor.finding import State
from sartor.errors import DeviceError


def doctor(json: JsonOption = False) -> None:
    """Show what this machine offers, what is missing, and whether it is quiet enough to tune.

    Ends with exit code 6 if Sartor cannot work here.
    """
    findings = list(examine())
    if json:
        show_json([asdict(each) for each in findings])
    else:
        rows = [(each.topic, each.name, each.found, each.state, each.advice) for each in findings]
        show_table("this machine", ("topic", "what", "found", "state", "advice"), rows)
    if any(each.state is State.BROKEN for each in findings):
        raise typer.Exit(DeviceError.exit_code)
