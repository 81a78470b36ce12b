"""The first inference, in which reading and executing overlap: its time, plans that minimise it, and its schedule."""
