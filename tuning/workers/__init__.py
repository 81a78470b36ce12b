"""Worker processes in which jobs may crash, hang or run out of memory."""
