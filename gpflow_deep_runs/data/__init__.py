"""Data: rows in named parts, from files, known data sets and streams."""
