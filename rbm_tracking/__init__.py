"""Restricted Boltzmann machines whose log partition function is tracked (Desjardins, Courville and Bengio 2011).

Sec. 2                            model/: energies, conditionals, exact log Z
Secs. 3, 4, Eqs. (2)-(4)          track/: tempering, the filter of Figs. 1 and 2, SML-PT
footnote 5                        estimates/: annealed importance sampling

use/: scikit-learn's interface, choices, evaluations; report: what is told of them.
"""

import lazy_loader

from gpflow_deep_base.runtime.tensor_float import full_float32  # with that TensorFlow starts without noise, too

full_float32()

# Names are imported from where __init__.pyi says when they are used, so that a part needs no more than it imports.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
