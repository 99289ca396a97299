"""The files of continuous integration: they parse, and call targets of the Makefile for the versions of the package."""

import re
from typing import Any

import pytest
import yaml

from tests.distributions import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKE = re.compile(r"\bmake ([a-z][a-z -]*)")


def jobs(name: str) -> dict[str, Any]:
    (path,) = [path for path in WORKFLOWS if path.stem == name]
    found: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))["jobs"]
    return found


def targets_of(text: str) -> set[str]:
    return {target for found in MAKE.findall(text) for target in found.split()}


def targets(name: str) -> set[str]:
    commands = [step.get("run", "") for job in jobs(name).values() for step in job["steps"]]
    return targets_of("\n".join(commands))


def test_they_call_targets_of_the_makefile() -> None:
    rules = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text("utf-8"), re.M)) | {"docs"}
    called = {path.stem: targets(path.stem) for path in WORKFLOWS}
    assert called == {
        "checks": {"check", "test", "test-ci"},
        "docs": {"docs"},
        "nightly": {"test-slow", "test-install"},
        "release": {"check", "test", "test-ci", "test-install", "dist", "docs"},
    }
    assert set().union(*called.values()) <= rules


def test_the_script_runs_what_every_change_runs_there() -> None:
    assert targets_of((ROOT / ".ci" / "run").read_text("utf-8")) == targets("checks") | targets("docs")


def test_fast_tests_run_on_every_version_that_is_promised() -> None:
    promised = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text("utf-8"))
    assert jobs("checks")["test"]["strategy"]["matrix"]["python"] == promised


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_jobs_end_and_may_only_read(path: Any) -> None:
    """A limit of time for all that runs programs; no rights but those that a job names."""
    content = yaml.safe_load(path.read_text("utf-8"))
    assert content["permissions"] == {"contents": "read"}
    for name, job in content["jobs"].items():
        runs_make = any("make " in step.get("run", "") for step in job["steps"])
        assert not runs_make or job["timeout-minutes"] <= 350, name
        assert not (runs_make and "permissions" in job), name


@pytest.mark.parametrize(
    "name", [".pre-commit-config.yaml", ".github/ISSUE_TEMPLATE/bug.yml", ".github/ISSUE_TEMPLATE/wish.yml"]
)
def test_other_files_parse(name: str) -> None:
    assert yaml.safe_load((ROOT / name).read_text("utf-8"))
