"""The Python of every README, of docs/data.md and of docs/howto/ runs as printed, each page in a process of its own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden.compare import environment

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGES = [ROOT / "README.md", *ROOT.glob("*/README.md"), ROOT / "docs" / "data.md", *ROOT.glob("docs/howto/*.md")]
READMES = sorted(path for path in PAGES if BLOCK.search(path.read_text("utf-8")))


def test_each_package_has_an_example() -> None:
    packages = {"gpflow_deep", "darn", "rbm_tracking", "ebp", "compression"}
    assert {path.parent.name for path in READMES} >= packages
    wanted = {"own_table", "missing_values", "kernel", "likelihood", "layer", "conditional", "unit_type", "run_folder"}
    assert {path.stem for path in READMES} >= wanted


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("readme", READMES, ids=lambda path: str(path.relative_to(ROOT)))
def test_python_runs_as_printed(readme: Path, tmp_path: Path) -> None:
    blocks = BLOCK.findall(readme.read_text(encoding="utf-8"))
    program = tmp_path / "readme.py"
    program.write_text("\n\n".join(f"# block {number}\n{block}" for number, block in enumerate(blocks, start=1)))
    done = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, env=environment(ROOT), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
