"""Known data sets: where their files come from, how they are checked, and how they are read."""
