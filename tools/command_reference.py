"""Hook of MkDocs: writes the reference of the command line from the code."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

MARK = "<!-- the commands -->"
"""Where the reference is put in a page."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Complete a page before it is rendered; MkDocs calls this by name."""
    return markdown.replace(MARK, command_reference()) if MARK in markdown else markdown


def command_reference() -> str:
    """All commands and their options as Markdown, without the title."""
    command = [sys.executable, "-m", "typer", "--app", "app", "sartor.cli.apps", "utils", "docs", "--name", "sartor"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.partition("\n")[2]
