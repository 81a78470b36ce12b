"""``sartor db``: inspect the tuning database, move measurements between machines, and prune it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from sartor.cli.database.contribute import contribute
from sartor.cli.database.list import list_tasks
from sartor.cli.database.prune import prune
from sartor.cli.database.show import show
from sartor.cli.database.transfer import export_measurements, import_measurements
from sartor.errors import UsageError

_DEFAULT = "show"


class _ShowsByDefault(TyperGroup):
    """Makes ``sartor db [PATH]`` equivalent to ``sartor db show [PATH]``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = bool(args) and args[0] in {*self.commands, "--help"}
        # A file would have a suffix or a folder, or be there: this is a mistyped command.
        if not named and args and args[0].isalpha() and not Path(args[0]).exists():
            raise UsageError(
                f"'{args[0]}' is neither a command of 'sartor db', which are {', '.join(self.commands)}, nor a database"
            )
        return super().parse_args(ctx, args if named else [_DEFAULT, *args])


db_app = typer.Typer(
    cls=_ShowsByDefault,
    help="Look into the tuning database, move measurements between machines, tidy up. (default: show)",
)
db_app.command(_DEFAULT)(show)
db_app.command("list")(list_tasks)
db_app.command("export")(export_measurements)
db_app.command("import")(import_measurements)
db_app.command("contribute")(contribute)
db_app.command("prune")(prune)
