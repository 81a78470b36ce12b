"""Building, running and timing whole networks in workers."""
