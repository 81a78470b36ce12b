"""What keeps the source in order, and looks for faults in it."""
