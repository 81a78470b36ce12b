"""The file of the tuning database: opening it, its tables, its rows and its errors."""
