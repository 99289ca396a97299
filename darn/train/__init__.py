"""From rows to a trained model.

training                steps in one graph; evaluations and the best parameters
optimization            RMSProp, Adam, running means
selection               architectures chosen on validation rows (rivals)
chain_fitting           chains, trees and mixtures of independent columns; rows with gaps, filled;
                        variables that decide others, as a city its state
network_fitting         masked networks
density_choice          the best of these, chosen on validation rows
density, variables      scikit-learn's interface; frames as bits, and back
keras_model             Keras' interface
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(__name__)
