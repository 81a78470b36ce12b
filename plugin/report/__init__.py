"""Reports: one file with a module's network, its layers, and all that was measured about them; and differences."""
