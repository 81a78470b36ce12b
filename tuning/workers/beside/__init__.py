"""What goes on beside a pool of workers."""
