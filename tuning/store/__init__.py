"""The tuning database: storing, merging, exporting, pruning and summarising measurements."""
