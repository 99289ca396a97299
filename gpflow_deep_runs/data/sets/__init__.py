"""Known data sets (catalogue), and where their files come from and how they are checked (files).

uci, supervised, flights; text; images, binary; atari: readers of each kind.
"""
