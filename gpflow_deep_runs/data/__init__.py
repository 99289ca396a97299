"""Data: rows in named parts (rows), which all readers return.

views, sets/, tables       a known data set; a user's own table: its table/ of columns, values/ of cells, and files/
density/                   rows of bits or numbers for density models
supply, streams/           what a step learns from, in memory or piece by piece
"""
