"""gpflow_deep_base.runtime.quiet: TensorFlow's noise is dropped from standard error, and nothing else.

The module is run in processes of their own, as pytest has its own standard error; all but one do not import TensorFlow.
"""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpflow_deep_base.runtime import quiet

ROOT = Path(__file__).resolve().parents[2]
NOISE = """\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795340774.698855   26579 cudart_stub.cc:31] Could not find cuda drivers on your machine
W0000 00:00:1795340774.698855   26579 gpu_device.cc:2341] Cannot dlopen some GPU libraries.
E0000 00:00:1795340774.698855   26579 cuda_dnn.cc:8579] Unable to register cuDNN factory: Attempting to register
E0000 00:00:1795340774.698855   26579 cuda_blas.cc:1407] Unable to register cuBLAS factory: Attempting to register
To enable the following instructions: AVX2 AVX512F FMA, in other operations, rebuild TensorFlow
"""
NO_GPU = (
    "E0000 00:00:1795340776.136963   26579 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: (303)\n"
)
NEWS = """\
E0000 00:00:1795340776.136963   26579 grpc.cc:52] the port is in use
/home/user/module.py:3: DeprecationWarning: old
  I0000 is indented here
\u00b5: a line without a meaning
"""


def run(body: str, *, has_driver: bool = False, **variables: object) -> "subprocess.CompletedProcess[bytes]":
    """Python code with the module as `quiet`, which finds a driver of GPUs or none."""
    program = f"""
import importlib.util, os, sys
spec = importlib.util.spec_from_file_location("quiet", {quiet.__file__!r})
quiet = importlib.util.module_from_spec(spec)
spec.loader.exec_module(quiet)
quiet.NVIDIA = quiet.Path({"/" if has_driver else "/absent"!r})
noise, NO_GPU, NEWS = {NOISE!r}, {NO_GPU!r}, {NEWS!r}
def write(text):
    os.write(2, text.encode())  # as C++ does, past Python's sys.stderr
{body}"""
    environment = {key: value for key, value in os.environ.items() if key != "TF_CPP_MIN_LOG_LEVEL"}
    environment |= {key: str(value) for key, value in variables.items()}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, timeout=120)


def test_noise_is_dropped_and_news_are_kept_in_order() -> None:
    """From C++ and from Python, before, within and after; standard output is not touched."""
    done = run("""
print("before", file=sys.stderr)
with quiet.without_noise():
    write(noise)
    print("python within", file=sys.stderr)
    write(NEWS)
    write(NO_GPU)
    print("output")
    sys.stderr.write("no end of line")
print(", after", file=sys.stderr)
write("and C++ after\\n")
""")
    assert done.stderr.decode() == f"before\npython within\n{NEWS}no end of line, after\nand C++ after\n"
    assert done.stdout == b"output\n"


def test_what_a_machine_with_a_driver_says_about_gpus_is_no_noise() -> None:
    done = run("with quiet.without_noise():\n    write(noise + NO_GPU)\n", has_driver=True)
    assert done.stderr.decode() == NO_GPU


@pytest.mark.parametrize(
    ("statement", "last_line"),
    [("raise ImportError('no such library')", "ImportError: no such library"), ("sys.exit('stopped')", "stopped")],
)
def test_after_a_failure_nothing_is_left_out(statement: str, last_line: str) -> None:
    done = run(f"with quiet.without_noise():\n    write(noise + NO_GPU)\n    {statement}\n")
    assert done.returncode == 1
    assert done.stderr.decode().startswith(NOISE + NO_GPU)
    assert done.stderr.decode().splitlines()[-1] == last_line


def test_bytes_that_are_no_text_and_a_process_without_standard_error() -> None:
    done = run("with quiet.without_noise():\n    os.write(2, b'\\xff\\xfe broken\\n' + noise.encode())\n")
    assert done.stderr.decode().endswith(" broken\n")
    done = run("os.close(2)\nwith quiet.without_noise():\n    print('ran')\n")
    assert (done.returncode, done.stdout) == (0, b"ran\n")


def test_a_child_process_is_heard_and_nothing_stays_open() -> None:
    """The descriptors are those of before, and a process that is started within writes to the same place."""
    done = run("""
before = sorted(os.listdir("/proc/self/fd"))
with quiet.without_noise():
    os.system("echo from a child >&2")
assert sorted(os.listdir("/proc/self/fd")) == before
""")
    assert (done.returncode, done.stderr.decode()) == (0, "from a child\n")


def test_the_import_of_tensorflow_is_silent_whenever_it_comes() -> None:
    """The noise of another module of that name is dropped, too, and it is left as Python's own import leaves it."""
    environment = {key: value for key, value in os.environ.items() if key != "TF_CPP_MIN_LOG_LEVEL"}
    program = """
import importlib.resources, sys
import gpflow_deep_base
assert "tensorflow" not in sys.modules
import tensorflow as tf
assert int(tf.constant(1) + 1) == 2
assert "Quiet" not in f"{tf.__loader__} {tf.__spec__.loader}"
assert importlib.resources.files("tensorflow").is_dir()
print("last", file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "last\n")


def test_who_sets_the_level_sees_all_and_a_missing_tensorflow_is_missing(tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text("import sys\nprint('I0000 noise', file=sys.stderr)\n")
    silent = run("quiet.quieten_tensorflow()\nsys.path.insert(0, os.environ['FAKE'])\nimport tensorflow", FAKE=tmp_path)
    assert (silent.returncode, silent.stderr) == (0, b"")
    body = (
        "os.environ['TF_CPP_MIN_LOG_LEVEL'] = '0'\nquiet.quieten_tensorflow()\nsys.path.insert(0, os.environ['FAKE'])\n"
    )
    assert run(f"{body}import tensorflow", FAKE=tmp_path).stderr == b"I0000 noise\n"
    missing = run("quiet.quieten_tensorflow()\nsys.path[:] = []\nimport tensorflow")
    assert missing.stderr.decode().splitlines()[-1] == "ModuleNotFoundError: No module named 'tensorflow'"


def test_a_module_is_loaded_within_a_context_once(tmp_path: Path) -> None:
    (tmp_path / "shapes.py").write_text("print('module')\n")
    done = run(
        """
import contextlib, importlib
@contextlib.contextmanager
def context():
    print("before")
    yield
    print("after")
quiet.import_within("shapes", context)
sys.path.insert(0, os.environ["FAKE"])
import shapes
importlib.reload(shapes)
quiet.import_within("shapes", context)  # too late
importlib.reload(shapes)
assert not [finder for finder in sys.meta_path if isinstance(finder, quiet._Finder)]
""",
        FAKE=tmp_path,
    )
    assert (done.stderr.decode(), done.stdout.decode()) == ("", "before\nmodule\nafter\nmodule\nmodule\n")


def test_warnings_of_tensorflow_are_held_back_for_a_while() -> None:
    logger = logging.getLogger("tensorflow")
    before = logger.level

    @quiet.without_warnings()
    def level() -> int:
        return logger.getEffectiveLevel()

    assert level() == logging.ERROR
    with pytest.raises(KeyError), quiet.without_warnings():
        raise KeyError
    assert logger.level == before
