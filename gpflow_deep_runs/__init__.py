"""Infrastructure for running experiments, which knows no model: data/, run/ and sweeps/ of many, report/ of results.

command, verbs and cli/ are `gpflow-deep VERB`; early and run_dir say what is refused before TensorFlow starts.
"""

import gpflow_deep_base  # noqa: F401  TensorFlow starts without noise
