"""scikit-learn's interface, and what goes beyond one pass.

classifier, regressor, gaussian_classifier (second_order_estimator); estimators: what they have in common,
                              errors of each output, and what is known of the weights
calibration                   probabilities calibrated by predictions before learning
streams                       rows that come one after the other: classes that stay away, rows as dictionaries
inputs                        what is done to rows before a network sees them
predictor                     trained networks for new rows
folds                         networks of each kind of weights, seed and fold, an epoch at a time
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    submod_attrs={
        "estimators": ["batches", "check_classes", "check_second_order", "check_whole_numbers", "layer_widths"]
    },
)
