"""From rows to a trained model.

training, optimization  steps in one graph; RMSProp, Adam
fitting                 evaluations and the best parameters
selection               architectures chosen on validation rows (candidates, rivals)
chain_fitting           chains, trees and mixtures of independent columns
network_fitting         masked networks
density_choice          the best of these, chosen on validation rows
gaps                    rows with missing bits, filled
density, variables      scikit-learn's interface; frames as bits, and back
keras_model             Keras' interface
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=[
        "candidates",
        "chain_fitting",
        "density",
        "density_choice",
        "fitting",
        "gaps",
        "keras_model",
        "network_fitting",
        "optimization",
        "rivals",
        "selection",
        "training",
        "variables",
    ],
)
