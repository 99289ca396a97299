"""Data larger than memory, read piece by piece in an order that a resumed run repeats."""
