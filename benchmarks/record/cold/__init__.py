"""First inferences, each in a process of its own."""
