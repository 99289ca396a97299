"""Rows for density models: bits, continuous columns, and grey levels as bit planes."""
