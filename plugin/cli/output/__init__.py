"""Messages, progress and tables on the terminal, and what signals do."""
