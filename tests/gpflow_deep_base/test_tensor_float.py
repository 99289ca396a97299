"""gpflow_deep_base.runtime.tensor_float: products of float32 matrices are float32 on a GPU, from the import of a
package on.

Processes of their own, as it is a setting of the process; seen without a GPU by the setting alone.
"""

import subprocess
import sys

import pytest

ENABLED = "import tensorflow as tf; print(tf.config.experimental.tensor_float_32_execution_enabled())"


def printed(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True)
    return done.stdout.split()


@pytest.mark.parametrize("package", ["gpflow_deep", "darn", "rbm_tracking", "ebp"])
def test_a_package_switches_tf32_off(package: str) -> None:
    assert printed(f"import {package}; import gpflow_deep_base; {ENABLED}") == ["False"]


def test_it_does_not_matter_what_is_imported_first_and_can_be_taken_back() -> None:
    program = (
        f"{ENABLED}\nimport darn\n{ENABLED}\ntf.config.experimental.enable_tensor_float_32_execution(True)\n"
        f"darn.DARNConfig\nimport ebp.network\n{ENABLED}"
    )
    assert printed(program) == ["True", "False", "True"]


def test_networks_of_others_keep_it() -> None:
    """`compression` works on networks of any size, whose convolutions TF32 makes faster."""
    assert printed(f"import compression; {ENABLED}") == ["True"]
