"""Parsing and checking settings: numbers, choices, paths, sizes and ages; errors name the setting."""
