"""Training replayed: candidates are fitted through the unrolled training itself."""
