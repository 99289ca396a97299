"""Data larger than memory, read piece by piece in an order that a resumed run repeats.

stream: one pass (scan, moments, record), then batches (reader) of blocks of files; own, presets: columns; convert.
"""
