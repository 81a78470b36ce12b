"""Options of commands, and reading their values."""
