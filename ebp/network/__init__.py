"""Expectation backpropagation (Soudry, Hubara and Meir, 2014), in the paper's order.

posterior       Eqs. (3.5)-(3.7), Appendix D
forward         Eqs. (4.1), (4.2); Appendix B
heads           Eq. (4.3), footnote 4
backward        Eq. (4.4)
update          Eq. (4.5); its term of second order is in `ebp.second_order`
network         Eqs. (4.6), (4.7): EBP-D, EBP-P (architecture, few_rows)
convolution     shared weights
coding          inputs as bits or numbers

Whole passes over rows are in `ebp.training`.
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__, submod_attrs={"network": ["EBPNetwork"]})
