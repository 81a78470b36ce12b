"""Starting worker processes, also before there is a pool."""
