"""Files in memory: mapped at once, read ahead of the first inference, and moved to huge pages behind it."""
