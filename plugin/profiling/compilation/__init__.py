"""One compilation: variants measured, plans selected and run, and the best right one published."""
