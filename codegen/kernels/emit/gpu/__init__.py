"""Assemblers for GPUs: a lane, two lanes, or a thread at a time."""
