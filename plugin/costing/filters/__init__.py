"""What drops candidates of layers: each filter keeps a ledger of what it drops and why."""
