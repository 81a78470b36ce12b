"""Options of commands, and functions that parse their values."""
