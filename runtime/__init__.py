"""Running a .vmfb: sessions, manifests, and measures of time, memory and error."""
