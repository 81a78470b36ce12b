"""Reading what users write as settings: numbers, choices, paths, sizes and ages, in errors that name the setting."""
