"""RBMs for users.

estimator          scikit-learn's interface (estimator_config, estimator_rows, frames); classifier
alignment          FASTA files and weights of sequences
training           steps with evaluations
evaluation         log-likelihoods by each estimate of log Z
averages           averaged parameters with their log Z; the last steps with a population in place of chains
search             width and decay by validation rows
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__)
