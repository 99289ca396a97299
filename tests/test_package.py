"""What is published: files of the wheel and of the source distribution, metadata, commands, the long description."""

import ast
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpflow_deep_runs.verbs import VERBS
from tests.distributions import PACKAGES, ROOT, SCRIPTS, Distributions, build

VERSION = re.search(r'^__version__ = "(.*?)"', (ROOT / "gpflow_deep" / "__init__.py").read_text("utf-8"), re.M)
PAPERS = {
    "Doubly Stochastic Variational Inference for Deep Gaussian Processes": "Salimbeni",
    "Deep AutoRegressive Networks": "Gregor",
    "On Tracking The Partition Function": "Desjardins",
    "Expectation Backpropagation: Parameter-Free Training of Multilayer Neural Networks with Continuous or Discrete "
    "Weights": "Soudry",
    "Bayesian Compression for Deep Learning": "Louizos",
}


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    return build(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def setup() -> Any:
    """The module setup.py."""
    spec = importlib.util.spec_from_file_location("setup_of_gpflow_deep", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MADE = (".", "__pycache__", "_build", "generated")


def sources(folder: str, pattern: str = "*.py") -> set[str]:
    return {
        str(path.relative_to(ROOT))
        for path in (ROOT / folder).rglob(pattern)
        if path.is_file() and not any(part.startswith(MADE) for part in path.relative_to(ROOT).parts)
    }


def test_the_wheel_holds_the_packages_and_the_scripts_and_nothing_else(distributions: Distributions) -> None:
    modules = {name for package in PACKAGES for name in sources(package)} | {
        name.replace("scripts/", f"{SCRIPTS}/", 1) for name in sources("scripts")
    }
    stubs = {name for package in PACKAGES for name in sources(package, "*.pyi")}
    typed = {f"{package}/py.typed" for package in PACKAGES}
    described = {name for package in PACKAGES for name in sources(package, "*.json")}
    names = {name for name in distributions.wheel_names() if ".dist-info/" not in name}
    assert stubs
    assert names == modules | stubs | typed | described


def test_the_source_distribution_holds_what_tests_and_readers_need(distributions: Distributions) -> None:
    names = distributions.sdist_names()
    wanted = {name for folder in ("tests", "docs", "benchmarks", "results") for name in sources(folder, "*")}
    wanted |= {name for folder in (*PACKAGES, "scripts") for name in sources(folder)}
    wanted |= {f"{package}/README.md" for package in PACKAGES if (ROOT / package / "README.md").is_file()}
    wanted |= {"CHANGELOG.md", "GLOSSARY.md", "LICENSE", "Makefile", "pyproject.toml", "setup.py", "tests/conftest.py"}
    wanted |= {"CITATION.cff", "SECURITY.md", ".ci/run", ".github/workflows/checks.yml", "scripts/ruff.toml"}
    assert wanted - names == set()
    assert not [name for name in names if name.startswith(("runs/", ".venv/", "build/")) or name.endswith(".pyc")]


def test_metadata(distributions: Distributions) -> None:
    found = distributions.headers()
    assert VERSION is not None
    assert found["Name"] == "gpflow-deep"
    assert found["Version"] == VERSION[1]
    assert found["Author"] == "The gpflow-deep developers"
    assert found["License-Expression"] == "Apache-2.0"
    assert found.get_all("License-File") == ["LICENSE"]
    assert "deep Gaussian processes" in found["Keywords"].split(",")
    classifiers = found.get_all("Classifier", [])
    assert {f"Programming Language :: Python :: {version}" for version in ("3.10", "3.11", "3.12")} <= set(classifiers)
    assert "Typing :: Typed" in classifiers
    assert {"gpu", "atari", "docs", "packed", "all"} <= set(found.get_all("Provides-Extra", []))


def test_requirements(distributions: Distributions) -> None:
    required = distributions.headers().get_all("Requires-Dist", [])
    of_all = [text for text in required if "extra ==" not in text]
    names = {re.match(r"[\w-]+", text)[0].lower() for text in of_all}  # type: ignore[index]
    assert "setuptools" not in names
    assert names >= {"pandas", "pyarrow", "matplotlib"}  # the first screen shows a table and a plot
    assert [text.partition(";")[0] for text in of_all if "<" in text.partition(";")[0]] == ["pyarrow<26,>=15"]
    wanted = {"atari", "docs", "excel", "packed", "gpu"}
    of_extra_all = [text for text in required if re.search(r"extra == [\"']all[\"']", text)]
    taken = {extra for text in of_extra_all for extra in re.search(r"\[(.*?)\]", text)[1].split(",")}  # type: ignore[index]
    assert taken == wanted


def test_one_command_calls_the_scripts(distributions: Distributions) -> None:
    lines = distributions.metadata("entry_points.txt").splitlines()
    targets = [line.partition(" = ")[2] for line in lines if " = " in line]
    scripts = {path.stem: path for path in (ROOT / "scripts").glob("*.py")}
    assert sorted(targets) == ["compression.__main__:main", "gpflow_deep_runs.command:main"]
    assert "gpflow-deep = gpflow_deep_runs.command:main" in lines
    assert {script for script, _ in VERBS.values()} < set(scripts)
    for path in scripts.values():
        assigned = [node for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.Assign)]
        assert any(ast.unparse(node).startswith("command = ") for node in assigned), f"{path.name} has no `command`"


def test_the_long_description_leads_nowhere_that_is_not_there(distributions: Distributions) -> None:
    text = distributions.headers().get_payload()
    assert isinstance(text, str)
    prose = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    assert "](" not in re.sub(r"\]\((https?://|#)", "", prose)
    assert "![" not in prose
    assert "make train" in text


@pytest.mark.parametrize(
    ("readme", "plain", "linked"),
    [
        ("see [a](b/c.md).", "see a.", "see [a](https://host/us/it/blob/HEAD/b/c.md)."),
        ("[`a`](b.md) and [c](https://d.e)", "`a` and [c](https://d.e)", None),
        ("![p](docs/p.png)", "", "![p](https://host/us/it/raw/HEAD/docs/p.png)"),
        ("[down](#down)", "[down](#down)", "[down](#down)"),
        ("`x[0](y)`", "`x[0](y)`", "`x[0](y)`"),
        ("```\nf[0](y)\n```\n[a](b)", "```\nf[0](y)\n```\na", "```\nf[0](y)\n```\n[a](https://host/us/it/blob/HEAD/b)"),
    ],
)
def test_links_of_the_long_description(setup: Any, readme: str, plain: str, linked: str | None) -> None:
    assert setup.long_description(readme) == plain
    if linked is not None:
        assert setup.long_description(readme, "https://host/us/it") == linked


def test_the_citation_names_this_version_and_all_papers() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert VERSION is not None
    assert cited["version"] == VERSION[1]
    assert cited["license"] == "Apache-2.0"
    first = {paper["title"]: paper["authors"][0]["family-names"] for paper in cited["references"]}
    assert first == PAPERS


def test_the_version_is_a_released_or_coming_one_of_the_changelog() -> None:
    headings = re.findall(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert VERSION is not None
    assert headings[0] in ("Unreleased", VERSION[1])


def test_the_version_is_said_once() -> None:
    assert VERSION is not None
    assert f'"{VERSION[1]}"' not in (ROOT / "pyproject.toml").read_text("utf-8")
    assert f'"{VERSION[1]}"' not in (ROOT / "setup.py").read_text("utf-8")


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_are_typed(package: str) -> None:
    assert Path(ROOT / package / "py.typed").is_file()
