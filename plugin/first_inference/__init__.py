"""Timing the first inference: in fresh processes, with files in the page cache or not, beside other runtimes."""
