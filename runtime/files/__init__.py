"""Reading files that users name: which kinds of files are read, and what their checksums are."""
