"""README.md, the packages' READMEs, docs/data.md and docs/howto/ run as printed, from a wheel without extras.

Each page has an empty folder. Its blocks of Python are one program, between whose parts its lines of shell run; these
take the files that `FILES` makes for them, and flags that make them short. What needs an extra, the folder of the
project or data that come with no package says so beside it. Every change runs each block and each line; those pages
that take minutes have fewer steps in their blocks then, and as many as printed each night.
"""

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from tests.distributions import build
from tests.installed import Installation, installed
from tests.test_shell_lines import lines_of
from tests.tiers import load

ROOT = Path(__file__).resolve().parent.parent
PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^```(?:python|sh|bash)\n.*?^```", re.DOTALL | re.MULTILINE)
PAGES = [ROOT / "README.md", *ROOT.glob("*/README.md"), ROOT / "docs" / "data.md", *ROOT.glob("docs/howto/*.md")]
READMES = sorted(path for path in PAGES if BLOCK.search(path.read_text("utf-8")))

AS_PRINTED = "tests/test_readmes.py::test_a_page_runs_as_printed"
NEEDS_EXTRA = "gpflow-deep["
NEEDS_PROJECT = "in the folder of the project"
NEEDS_DATA = "--data_dir=DATA"
README_SECONDS = 75.0
"""CPU seconds of the README's examples: 15 for each of five."""

NOISE = re.compile(r"cuInit|oneDNN|computation_placer|InitializeLog|cpu_feature_guard|Unable to register")
SHORT = {
    "train": "--num_layers=2 --num_inducing=5 --kernel=squared_exponential --num_steps=2 --batch_size=20 "
    "--eval_every=2 --eval_rows=20 --compare= --num_predict_samples=8",
    "rbm": "--num_steps=20 --eval_every=20 --log_every=20 --exact_every=0 --final_ais_betas=50 --ais_betas=20 --nojit "
    "--notrajectory",
    "darn": "--num_steps=2 --eval_every=2 --log_every=2 --final_samples=3 --is_repeats=2 --is_samples=20",
    "ebp": "--num_folds=2 --epochs=1 --hidden=5",
    "compress": "--epochs=1 --pretrain_epochs=1 --polish_epochs=0",
}
"""Flags that make a verb's runs short; the last one of a name counts."""
MOST = {"epochs": 2, "num_steps": 200, "max_iter": 20, "max_updates": 50, "window": 20, "burn_in": 20}
"""What makes blocks of Python short: the most that they ask for by names that end so."""
COUNT = re.compile(rf"\b(\w*?({'|'.join(MOST)}))=(\d+)")
NIGHTLY = {test for test, tier in load().items() if tier == "nightly"}
LONG = [page for page in READMES if f"{AS_PRINTED}[{page.relative_to(ROOT)}]" in NIGHTLY]


def write_table(path: Path) -> None:
    """Columns of all tables that the pages have: numbers, categories, a target of each kind."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"area": rng.normal(100, 30, 60).round(1), "port": rng.choice(["C", "Q"], 60)})
    frame["price"], frame["Survived"] = 2000 * frame["area"], (frame["area"] > 100).astype(int)
    frame["kind"] = np.where(frame["area"] > 100, "large", "small")
    for name in ("Name", "Ticket", "Cabin"):
        frame[name] = rng.choice(["A", "B"], 60)
    frame.loc[::9, "port"] = "unknown" if path.name == "passengers.csv" else "C"
    frame.to_csv(path, index=False)


def write_texts(path: Path) -> None:
    lines = [{"text": f"a {word} film {number}", "label": word} for number in range(20) for word in ("good", "bad")]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_counts(path: Path) -> None:
    counts = np.random.default_rng(0).poisson(0.5, (40, 8))
    scipy.sparse.save_npz(path, scipy.sparse.csr_matrix(counts))


def write_labels(path: Path) -> None:
    path.write_text("one\ntwo\n" * 20)


FILES: dict[str, Callable[[Path], None]] = {
    "houses.csv": write_table,
    "new_houses.csv": write_table,
    "passengers.csv": write_table,
    "new_passengers.csv": write_table,
    "table.csv": write_table,
    "reviews.jsonl": write_texts,
    "new.jsonl": write_texts,
    "counts.npz": write_counts,
    "labels.txt": write_labels,
}
"""What pages call tables of a reader's own."""


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    wheel = build(tmp_path_factory.mktemp("built")).wheel
    with installed(wheel, tmp_path_factory.mktemp("installed") / "wheel") as found:
        yield found


def parts_of(page: str) -> Iterator[tuple[str, str]]:
    """What is to run: ("python", program) and ("shell", line), in the order of the page."""
    for block in BLOCK.findall(page):
        if NEEDS_EXTRA in block or NEEDS_DATA in block:
            continue
        if block.startswith("```python"):
            yield "python", PYTHON.findall(block)[0]
        else:
            yield from (("shell", line) for line in lines_of(block))


def shortened(line: str) -> list[str]:
    """The words of a line, with the flags that make it short."""
    words = shlex.split(line, comments=True)
    is_run = words[0] == "gpflow-deep" and words[2].startswith("-")  # compress FILE has no such flags
    return [*words, *SHORT.get(words[1], "").split()] if is_run else words


def test_each_package_has_an_example() -> None:
    packages = {"gpflow_deep", "darn", "rbm_tracking", "ebp", "compression"}
    assert {path.parent.name for path in READMES} >= packages
    wanted = {"own_table", "missing_values", "kernel", "likelihood", "layer", "conditional", "unit_type", "run_folder"}
    assert {path.stem for path in READMES} >= wanted


def shorter(code: str) -> str:
    """A block of Python with fewer steps."""
    return COUNT.sub(lambda count: f"{count[1]}={min(int(count[3]), MOST[count[2]])}", code)


def run_page(
    readme: Path, installation: Installation, folder: Path, change: Callable[[str], str] = lambda code: code
) -> None:
    """Run a page in an empty folder, its blocks of Python as `change` makes them."""
    text = readme.read_text(encoding="utf-8")
    program = ["import subprocess"]
    for kind, part in parts_of(text):
        if kind == "python":
            program.append(change(part))
        elif part.split()[0] not in ("make", "pip"):
            program.append(f"subprocess.run({shortened(part)!r}, check=True)")
    for name, write in FILES.items():
        if name in text:
            write(folder / name)
    if NEEDS_PROJECT in text:
        (folder / "results").symlink_to(ROOT / "results")
    (folder / "page.py").write_text("\n\n".join(program), encoding="utf-8")
    done = installation.run("python", "page.py", cwd=folder)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert not NOISE.search(done.stdout + done.stderr)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("readme", READMES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_runs_as_printed(readme: Path, installation: Installation, tmp_path: Path) -> None:
    before = len(installation.seconds())
    run_page(readme, installation, tmp_path)
    if readme == ROOT / "README.md":
        assert sum(installation.seconds()[before:]) < README_SECONDS


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("readme", LONG, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_long_page_runs_with_fewer_steps(readme: Path, installation: Installation, tmp_path: Path) -> None:
    run_page(readme, installation, tmp_path, shorter)


@pytest.mark.slow
@pytest.mark.ci
def test_a_command_that_does_not_exist_fails(installation: Installation, tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text('import subprocess; subprocess.run(["train_dgp.py", "--help"], check=True)')
    done = installation.run("python", "page.py", cwd=tmp_path)
    assert (done.returncode, "FileNotFoundError" in done.stderr) == (1, True)
    assert installation.run("gpflow-deep", "learn", cwd=tmp_path).returncode == 2
    assert installation.run("python", "-c", "import constriction", cwd=tmp_path).returncode == 1  # of an extra
    assert installation.run("python", "-c", "import benchmarks", cwd=tmp_path).returncode == 1  # of the checkout
