"""Worker processes: jobs in them may crash, hang or run out of memory without harm to the main process."""
