"""`gpflow_deep_base.numbers.arithmetic` without Numba, and the ground floor on NumPy alone."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import importlib, json, pkgutil, sys
for name in ("numba", "tensorflow", "lazy_loader", "scipy", "sklearn", "pandas", "absl"):
    sys.modules[name] = None
import numpy as np
import gpflow_deep_base
for module in pkgutil.iter_modules(gpflow_deep_base.__path__):
    importlib.import_module(f"gpflow_deep_base.{module.name}")
from gpflow_deep_base.numbers.arithmetic import arithmetic

# A thousand decisions, one in ten of them 1, with the probability of that.
bits = np.random.default_rng(0).random(1000) < 0.1
stream = np.zeros(200, np.uint8)
registers = np.array([0, 2**32 - 1, 0, 0, 0])
for bit in bits:
    arithmetic(registers, stream, 2**16 // 10, int(bit))
length = int(registers[3])
stream[length : length + 4] = registers[1:2].astype(">u4").view(np.uint8)

first = int.from_bytes(stream[:4].tobytes(), "big")
registers = np.array([0, 2**32 - 1, first, 4, 1])
found = [bool(arithmetic(registers, stream, 2**16 // 10, 0)) for _ in bits]
print(json.dumps([length, found == bits.tolist()]))
"""


def test_the_ground_floor_needs_numpy_alone_and_codes_without_numba() -> None:
    """The entropy of the decisions is 0.469 bits each: 59 bytes."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    length, is_same = json.loads(done.stdout)
    assert is_same
    assert 50 <= length <= 68
