"""From rows to a trained model.

training, optimization  steps in one graph; RMSProp, Adam
fitting                 evaluations and the best parameters
selection               architectures chosen on validation rows (candidates, rivals)
chain_fitting           chains, trees and mixtures, chosen on validation rows
density                 scikit-learn's interface
keras_model             Keras' interface
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=[
        "candidates",
        "chain_fitting",
        "density",
        "fitting",
        "keras_model",
        "optimization",
        "rivals",
        "selection",
        "training",
    ],
)
