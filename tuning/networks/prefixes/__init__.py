"""Worker side: compile the beginnings of a network, time them, and tell the times of its pieces."""
