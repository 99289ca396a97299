"""One run: its folder, its loop, what it writes, and on what it computes."""
