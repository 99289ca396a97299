"""Tracking log Z while an RBM learns: Sections 3 and 4.

tempering, ladder             Eq. (2): swaps, block Gibbs; adaptive temperatures (SML-APT)
importance                    Eq. (3): change of log Z in an update
bridge                        Eq. (4): bridges between temperatures
tracker                       Figures 1, 2: the filter; filtering, partition_tracker: with NumPy alone
learning, gradient, state     SML-PT; settings, schedules, target
plain_updates, plain_tempering  of small models, in NumPy
health, evidence              what the filter says of itself; one interval and one verdict
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=[
        "bridge",
        "evidence",
        "filtering",
        "gradient",
        "health",
        "importance",
        "ladder",
        "learning",
        "partition_tracker",
        "plain_tempering",
        "plain_updates",
        "schedules",
        "settings",
        "state",
        "target",
        "tempering",
        "tracker",
        "tracking",
    ],
)
