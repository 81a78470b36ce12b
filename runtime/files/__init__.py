"""Reading files that users name: which kinds of files are read, their checksums, and records in JSON."""
