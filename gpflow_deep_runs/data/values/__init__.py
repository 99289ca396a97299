"""Cells of tables as values.

cells            the different texts of a column, and those that stand for a missing value
numerals         numbers as people write them; units: what stands beside them; styles: of a whole column
times, formats   dates and times; formats of a whole column
encoder          all that for frames in pipelines of scikit-learn
"""
