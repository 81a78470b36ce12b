"""The SQLite file of the tuning database: opening it, its schema, its rows and its errors."""
