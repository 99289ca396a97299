"""All rows of zeros and ones, for enumeration."""

import itertools

import numpy as np


def every_row(n: int) -> np.ndarray:
    """[2^n, n], in binary counting."""
    return np.array(list(itertools.product((0, 1), repeat=n)))
