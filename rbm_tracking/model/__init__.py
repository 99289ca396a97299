"""Restricted Boltzmann machines: Section 2 of Desjardins, Courville and Bengio (2011).

rbm           energy, free energy, conditionals; the tempered family of Section 4;
              a start from the data's leading modes
visible       families of units, and `families` for those beyond zeros and ones; units: one name for each
exact         log Z by enumeration
conditionals  some units given the others
checks        what is asked for, such as ladders of inverse temperatures
random, plain, serialization
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__)
