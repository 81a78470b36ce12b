"""Messages, progress and tables on the terminal, and handling of signals."""
