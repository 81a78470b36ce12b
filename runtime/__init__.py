"""Running a .vmfb: sessions, what a module says about itself, and what its run is measured by."""
