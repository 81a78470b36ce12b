"""The command line: entry points, and the commands as typer sees them."""
