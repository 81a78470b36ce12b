"""The tuning database: measurements kept, merged, exported, pruned and summed up."""
