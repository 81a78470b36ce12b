"""What a worker does that takes too long, asked before it is killed."""
