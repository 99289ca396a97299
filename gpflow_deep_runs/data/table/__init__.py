"""What the columns of a table are, and what becomes of them.

spec                             what a user says, by flags too
inference, columns, doubts       what a column is, from its cells; what may not be what it looks like
notes                            that in words
survey                           what is counted in a pass
features, targets, numeric       X and Y
schema                           all that reads new rows
"""
