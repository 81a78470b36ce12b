"""Tables that commands print about a module, a plan or this machine."""
