"""Doubly stochastic deep Gaussian processes as GPflow models (Salimbeni & Deisenroth 2017).

Eqs. (4)-(9), (15)      layers/
Eqs. (14), (16)-(18)    model/: draws through all layers, the bound, predictions
Appendix                train/; judge/: scores of what is predicted; report, pages: what is told of it
later papers            posteriors/, functions/; design, trieste: where to evaluate next; files/ of models

`gpflow_deep.keras`, layers for Keras models, is imported when it is first used.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import lazy_loader

from gpflow_deep_base.runtime.quiet import import_within  # with that TensorFlow starts without noise, too
from gpflow_deep_base.runtime.tensor_float import full_float32

__version__ = "0.2.0"


@contextmanager
def _plain_docstrings() -> Iterator[None]:
    """Leave the docstrings of GPflow as they are: to write shapes into each is most of its import, seconds."""
    import check_shapes

    usual = check_shapes.get_rewrite_docstrings()
    check_shapes.set_rewrite_docstrings(None)
    try:
        yield
    finally:
        check_shapes.set_rewrite_docstrings(usual)


full_float32()
import_within("gpflow", _plain_docstrings)

# Names are imported from where __init__.pyi says when they are used, so that a part needs no more than it imports.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ = [name for name in __all__ if name != "keras"]  # a star does not import it
