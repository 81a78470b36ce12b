"""A finished module beside other runtimes: its outputs, its layers one by one, and its time."""
