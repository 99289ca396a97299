"""Build the source distribution and the wheel from a copy of the tree."""

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import NamedTuple

__all__ = ["PACKAGES", "ROOT", "SCRIPTS", "Distributions", "build"]

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("compression", "darn", "ebp", "gpflow_deep", "gpflow_deep_base", "gpflow_deep_runs", "rbm_tracking")
SCRIPTS = "gpflow_deep_scripts"
"""What the folder scripts/ is called in a wheel."""

_NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", ".*_cache", "__pycache__", "_build", "build", "dist", "runs", "*.egg-info"
)


class Distributions(NamedTuple):
    """Paths of both."""

    sdist: Path
    wheel: Path

    def sdist_names(self) -> set[str]:
        """Files of the source distribution, without its top folder."""
        with tarfile.open(self.sdist) as archive:
            return {member.name.partition("/")[2] for member in archive if member.isfile()}

    def wheel_names(self) -> set[str]:
        """Files of the wheel."""
        with zipfile.ZipFile(self.wheel) as archive:
            return set(archive.namelist())

    def metadata(self, file: str = "METADATA") -> str:
        """Text of a file of the wheel's .dist-info."""
        (name,) = [name for name in self.wheel_names() if re.fullmatch(rf"[^/]*\.dist-info/{file}", name)]
        with zipfile.ZipFile(self.wheel) as archive:
            return archive.read(name).decode("utf-8")

    def headers(self) -> Message:
        """The core metadata, with the long description as payload."""
        return Parser().parsestr(self.metadata())


def build(folder: Path) -> Distributions:
    """Build both in `folder`; the wheel is that of the source distribution, and the checkout stays as it is."""
    source = folder / "source"
    shutil.copytree(ROOT, source, ignore=_NOT_COPIED)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-1500:]
    (sdist,), (wheel,) = (folder / "dist").glob("*.tar.gz"), (folder / "dist").glob("*.whl")
    return Distributions(sdist, wheel)
