"""scikit-learn's interface, and what goes beyond one pass.

classifier, regressor, gaussian_classifier (second_order_estimator)
calibration                   probabilities calibrated by predictions before learning
continual, memory, recency    streams of classes
one_by_one                    rows as dictionaries, as river has them
predictor                     trained networks for new rows
decorrelation                 inputs without correlations
row_order                     fits that do not depend on the order of a file
seen_columns                  columns that never occur cost nothing
far_values                    slips of the pen among the inputs
folds                         networks of each kind of weights, seed and fold, an epoch at a time
evaluation                    errors of each output, and what is known of the weights
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    submod_attrs={
        "estimators": [
            "batches",
            "check_classes",
            "check_second_order",
            "check_whole_numbers",
            "layer_widths",
        ]
    },
)
