"""What pyproject.toml cannot say: the packages by a pattern, and a long description without links that lead nowhere."""

import re
import sys
from pathlib import Path

from setuptools import find_packages, setup

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent
PACKAGES = ["gpflow_deep", "darn", "rbm_tracking", "ebp", "compression", "gpflow_deep_base", "gpflow_deep_runs"]
LINK = re.compile(r"(?P<code>```.*?```|`[^`]*`)|(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)", re.DOTALL)


def long_description(readme: str, source: str = "") -> str:
    """README.md for a page where the other files of the repository are not.

    :param readme: text in Markdown.
    :param source: address of the repository at a host that shows its files under blob/ and raw/, or "": relative links
        become plain text then, and pictures are left out.
    """

    def absolute(found: re.Match[str]) -> str:
        target = found["target"]
        if found["code"] or re.match(r"#|[a-z]+:", target):
            return found[0]
        if not source:
            return "" if found["image"] else found["text"]
        kind = "raw" if found["image"] else "blob"
        return f"{found['image']}[{found['text']}]({source}/{kind}/HEAD/{target})"

    return re.sub(r"\n{3,}", "\n\n", LINK.sub(absolute, readme))


def main() -> None:
    """Build or install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    setup(
        long_description=long_description(readme, project.get("urls", {}).get("Source", "").rstrip("/")),
        long_description_content_type="text/markdown",
        # The scripts are modules of a wheel, for its commands; a package called `scripts` would be anybody's.
        packages=[*find_packages(include=[*PACKAGES, *(f"{name}.*" for name in PACKAGES)]), "gpflow_deep_scripts"],
        package_data={name: ["py.typed", "*.pyi", "**/*.pyi", "**/*.json"] for name in PACKAGES},
    )


if __name__ == "__main__":
    main()
