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
        show_json([asdict(finding) for finding in findings])
    else:
        rows = [(finding.topic, finding.name, finding.found, finding.state, finding.advice) for finding in findings]
        show_table("this machine", ("topic", "what", "found", "state", "advice"), rows)
    if any(finding.state is State.BROKEN for finding in findings):
        raise typer.Exit(DeviceError.exit_code)
