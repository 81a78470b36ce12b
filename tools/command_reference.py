"""Hook of MkDocs: writes the reference of the command line and of the settings from the code."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from sartor.config_values import SETTINGS

MARK = "<!-- the commands -->"
"""Where the reference of the commands is put in a page."""

SETTINGS_MARK = "<!-- the settings -->"
"""Where the table of settings and their options is put in a page."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Complete a page before it is rendered; MkDocs calls this by name."""
    written = ((MARK, command_reference), (SETTINGS_MARK, settings_table))
    for mark, text in written:
        if mark in markdown:
            markdown = markdown.replace(mark, text())
    return markdown


def settings_table() -> str:
    """The settings of a compilation that an option sets alone, with what the option is for, as a table in Markdown."""
    rows = [
        f"| `{name}` | `{setting.option}` | {setting.help} |"
        for name, setting in SETTINGS.items()
        if setting.option is not None and setting.help
    ]
    return "\n".join(["| field | option | what for |", "|---|---|---|", *rows])


def command_reference() -> str:
    """All commands and their options as Markdown, without the title."""
    command = [sys.executable, "-m", "typer", "--app", "app", "sartor.cli.apps", "utils", "docs", "--name", "sartor"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.partition("\n")[2]
