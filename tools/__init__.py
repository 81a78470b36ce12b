"""What keeps the source in order."""
