"""Files of tables, of arrays and of documents.

sources                           a table from wherever it is
delimited, encodings, packed      text, its code page, packed
typed                             values of a source with types
arrays, documents, sparse         rows of numbers; texts; sparse matrices
inputs                            how inputs are made of a file, for new ones
libraries                         pandas and pyarrow at their first use
"""
