"""The weights of a module: packed ones as globals, and thousands of them joined."""
