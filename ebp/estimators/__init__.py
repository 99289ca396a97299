"""scikit-learn's interface, and what goes beyond one pass.

classifier, regressor, gaussian_classifier (second_order_estimator)
calibration                   probabilities calibrated by predictions before learning
continual, memory, recency    streams of classes
one_by_one                    rows as dictionaries, as river has them
predictor                     trained networks for new rows
decorrelation                 inputs without correlations
row_order                     fits that do not depend on the order of a file
seen_columns                  columns that never occur cost nothing
cross_validation              networks and rivals with each seed on each fold of data (fold_results)
baselines                     rivals of Section 5
"""

from gpflow_deep_base.doors import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    submodules=[
        "baselines",
        "calibration",
        "classifier",
        "continual",
        "cross_validation",
        "decorrelation",
        "estimators",
        "fold_results",
        "gaussian_classifier",
        "memory",
        "one_by_one",
        "predictor",
        "recency",
        "regressor",
        "row_order",
        "second_order_estimator",
        "seen_columns",
    ],
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
