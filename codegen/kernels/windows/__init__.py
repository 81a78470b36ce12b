"""Windows that keep channels apart, row strips of two layers as one, and concatenation."""
