"""What the analytic shortlist of tile sizes loses against the whole space, layer by layer."""
