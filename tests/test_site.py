"""The pages of the site without building it: every public name has an entry, every link leads somewhere."""

import importlib
import importlib.util
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from gpflow_deep_runs.report.results import cells, read_all

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PACKAGES = ["gpflow_deep", "darn", "rbm_tracking", "ebp", "compression"]
PAGES = [
    *ROOT.glob("*.md"),
    *(path for path in ROOT.glob("*/*.md") if not path.parent.name.startswith(".")),
    *(DOCS.glob("*/*.md")),
]


def extension(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def reference() -> str:
    """The text of all pages of the reference."""
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted((DOCS / "api").glob("*.rst")))


def entries() -> set[str]:
    """Names that the tables of the reference list."""
    return set(re.findall(r"^   ((?:\w+\.)+\w+)$", reference(), re.MULTILINE))


def with_a_page() -> list[str]:
    """Names that have a page of their own."""
    lists = re.findall(r":toctree: generated\n(?:   :.*\n)?((?:\n|   .*\n)*)", reference() + "\n")
    return re.findall(r"^   ((?:\w+\.)+\w+)$", "".join(lists), re.MULTILINE)


def further() -> list[str]:
    """Names on the page of the further names of a package."""
    return re.findall(r"^\.\. auto\w+:: (\S+)$", reference(), re.MULTILINE)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_has_an_entry(package: str) -> None:
    assert {f"{package}.{name}" for name in importlib.import_module(package).__all__} - entries() == set()


def test_the_reference_documents_each_name_once_on_about_120_pages() -> None:
    names = [*with_a_page(), *further()]
    assert len(names) == len(set(names))
    assert set(names) == entries()
    assert 60 < len(with_a_page()) <= 115  # and a page or two a package


def test_every_entry_exists() -> None:
    exists = extension("site_docstrings").exists
    assert [name for name in sorted(entries()) if not exists(name)] == []
    assert not exists("darn.no_such_name")


def slugs(page: Path) -> set[str]:
    """Anchors of the headings as on GitHub, and those that are written by hand."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    found = {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}
    return found | set(re.findall(r'<a id="([^"]+)">', text))


def links(text: str) -> Iterator[tuple[str, str]]:
    """Path and anchor of each relative link outside of code."""
    for match in extension("site_pages").LINK.finditer(text):
        target = match["target"] or ""
        if target and not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            yield path, anchor


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for path, anchor in links(page.read_text(encoding="utf-8")):
        wanted = (page.parent / path).resolve() if path else page
        is_anchor_wrong = bool(anchor) and wanted.suffix == ".md" and wanted.exists() and anchor not in slugs(wanted)
        if not wanted.exists() or is_anchor_wrong:
            broken.append(f"{path}#{anchor}")
    assert not broken


def test_links_of_a_file_lead_on_from_its_page() -> None:
    site = extension("site_pages")
    file, page = ROOT / "darn" / "README.md", DOCS / "packages" / "darn.md"
    pages = site.pages_of_files()
    assert pages[file] == page
    text = (
        "[`words`](../GLOSSARY.md#letters) ![p](../docs/deep_gp.png) "
        "[code](model/model.py) `[no](../GLOSSARY.md)` [x](#own)"
    )
    on_site = "[`words`](../pages/glossary.md#letters) ![p](../deep_gp.png) code `[no](../GLOSSARY.md)` [x](#own)"
    assert site.relinked(text, file, page, pages) == on_site
    to_page = "[darn](packages/darn.md)"  # not to the file that it shows
    assert site.relinked(to_page, DOCS / "index.md", DOCS / "index.md", pages) == to_page
    assert "[code](https://host/blob/HEAD/darn/model/model.py)" in site.relinked(
        text, file, page, pages, "https://host"
    )


def test_docstrings_are_plain_text() -> None:
    escaped = extension("site_docstrings").escaped
    lines = ["|x| of *args, `a*b` and log_z_:", "", "    code |x|", "", ":param x: `y_` or y_.", ":ivar z_: the `z`s."]
    found = [
        r"\|x\| of \*args, `a*b` and log_z\_:",
        "",
        "",
        "::",
        "",
        "    code |x|",
        "",
        r":param x: `y_` or y\_.",
        r":ivar z\_: the `z`\ s.",
    ]
    assert escaped(lines) == found


HEADLINES: dict[str, list[tuple[str, str, str]]] = {
    "gpflow_deep": [
        ("tabular_rivals/scores|kin8nm|DeepGPRegressor()", "log-likelihood", ".2f"),
        ("tabular_rivals/scores|kin8nm|DeepGPRegressor, 3 layers", "log-likelihood", ".2f"),
        ("tabular_rivals/scores|kin8nm|deep ensemble", "log-likelihood", ".2f"),
        ("tabular_rivals/scores|power|quantile boosting", "RMSE", ".2f"),
        ("tabular_rivals/scores|power|DeepGPRegressor()", "RMSE", ".2f"),
        ("tabular_rivals/scores|concrete|exact GP", "log-likelihood", ".2f"),
        ("tabular_rivals/scores|concrete|DeepGPRegressor()", "log-likelihood", ".2f"),
        ("tabular_rivals/scores|boston|exact GP", "log-likelihood", ".2f"),
        ("tabular_rivals/scores|boston|DeepGPRegressor()", "log-likelihood", ".2f"),
    ],
    "darn": [
        ("darn_tables/scores|connect4", "NLL", ".1f"),
        ("darn_orders/scores|connect4: MADE, 200 units, one order", "NLL", ".1f"),
        ("darn_auto/scores|connect4", "NLL", ".1f"),
        ("darn_files/bytes|flights, 100,000 rows shuffled", "coded", ",.0f"),
        ("darn_files/bytes|flights, 100,000 rows shuffled", "xz", ",.0f"),
    ],
    "rbm_tracking": [
        ("rbm_accuracy_large/errors|0.01, 1e3", "rmse", ".2f"),
        ("rbm_defaults/scores|connect4", "AIS, reverse AIS", ".1f"),
    ],
    "ebp": [
        ("ebp_text_probabilities/scores|20News comp vs HW|binary", "EBP-P, error (%)", ".1f"),
        ("ebp_c/sizes|196-72-10, hidden weights of 2 bits", "test error %", ".2f"),
        ("ebp_c/sizes|196-72-10, hidden weights of 4 bits", "test error %", ".2f"),
        ("ebp_c/sizes|MLP 196-40-10, 4 bits", "test error %", ".2f"),
        ("ebp_c/sizes|MLP 196-40-10, 8 bits", "test error %", ".2f"),
        ("ebp_c/sizes|196-304-10", "test error %", ".2f"),
    ],
    "compression": [
        ("compression_groups_weights/files|seed 1: groups, then weights, fixed point", "error of the file, %", ".2f"),
        ("compression_groups_weights/files|seed 1: groups, then weights, fixed point", "file, bytes", ",.0f"),
        ("compression_files/files|w^2 per bit, 5,000 weights, drawn to 12 values", "file, bytes", ",.0f"),
        ("compression_files/files|w^2 per bit, 5,000 weights, drawn to 12 values", "error of the file, %", ".2f"),
        ("compression_miracle/files|LeNet-5-Caffe, 16 + 24 epochs, 20 bits, seed 0", "error of the file, %", ".2f"),
    ],
}
"""Of the README's paragraphs on the systems: a table and the first cells of a row, the column, and the format."""


ANSWERS: dict[str, list[tuple[str, str, str]]] = {
    "intervals or densities": [
        ("tabular_rivals/scores|kin8nm|DeepGPRegressor()", "log-likelihood", ".2f"),
        ("tabular_rivals/scores|kin8nm|DeepGPRegressor, 3 layers", "log-likelihood", ".2f"),
        ("tabular_rivals/scores|kin8nm|deep ensemble", "log-likelihood", ".2f"),
        ("tabular_rivals/scores|kin8nm|NGBoost", "log-likelihood", ".2f"),
    ],
    "the same of a few hundred rows": [
        ("tabular_rivals/scores|boston|exact GP", "log-likelihood", ".2f"),
        ("tabular_rivals/scores|boston|DeepGPRegressor()", "log-likelihood", ".2f"),
        ("tabular_rivals/scores|concrete|exact GP", "log-likelihood", ".2f"),
        ("tabular_rivals/scores|concrete|DeepGPRegressor()", "log-likelihood", ".2f"),
    ],
    "the smallest RMSE": [
        ("tabular_rivals/scores|power|quantile boosting", "RMSE", ".2f"),
        ("tabular_rivals/scores|power|DeepGPRegressor()", "RMSE", ".2f"),
        ("tabular_rivals/scores|kin8nm|quantile boosting", "RMSE", ".3f"),
        ("tabular_rivals/scores|kin8nm|DeepGPRegressor()", "RMSE", ".3f"),
    ],
    "an emulator": [
        ("emulators/scores|step, 1, 20|DeepGPRegressor()", "CRPS", ".3f"),
        ("emulators/scores|step, 1, 20|GPflow's GPR", "CRPS", ".3f"),
        ("emulators/scores|step, 1, 20|dgpsi, 500 iterations", "CRPS", ".3f"),
        ("emulators/scores|plateau, 5, 100|DeepGPRegressor()", "CRPS", ".3f"),
        ("emulators/scores|plateau, 5, 100|GPflow's GPR", "CRPS", ".3f"),
        ("emulators/scores|plateau, 5, 100|dgpsi, 500 iterations", "CRPS", ".3f"),
    ],
    "the next point": [
        ("optimisation/regret|Michalewicz 5|60", "deep GP, global inducing outputs", ".2f"),
        ("optimisation/regret|Michalewicz 5|60", "GP", ".2f"),
        ("optimisation/regret|Michalewicz 5|60", "Sobol points", ".2f"),
    ],
    "to know which rows": [
        ("darn_density/scores|digits: AUC of eights among unseen rows", "DARN", ".3f"),
        ("darn_density/scores|digits: AUC of eights among unseen rows", "ten nearest neighbours", ".3f"),
    ],
    "a table smaller": [
        ("darn_files/bytes|flights, 100,000 rows shuffled", "coded", ",.0f"),
        ("darn_files/bytes|flights, 100,000 rows shuffled", "xz", ",.0f"),
    ],
    "an RBM, and to know": [("rbm_accuracy_large/errors|0.01, 1e3", "rmse", ".2f")],
    "an RBM's features": [
        ("rbm_digits/scores|BernoulliRBM(100, n_iter=240, learning_rate=0.01)", "test", ".2f"),
        ("rbm_digits/scores|BernoulliRBM(100, n_iter=240, learning_rate=0.01)", "CPU s, all in", ".0f"),
        ("rbm_digits/scores|rbms, 2,000 updates at a rate of 0.5", "test", ".2f"),
        ("rbm_digits/scores|TrackedRBM(100)", "test", ".2f"),
        ("rbm_digits/scores|TrackedRBM(100)", "CPU s, all in", ".0f"),
    ],
    "probabilities of labels": [
        ("ebp_probabilities/scores|Reuters I6|TF-IDF, logistic regression, C tuned", "error (%)", ".2f"),
        ("ebp_probabilities/scores|Reuters I6|EBP, real, defaults", "error (%)", ".2f"),
        ("ebp_probabilities/scores|Reuters I6|EBP, binary, defaults", "error (%)", ".2f"),
    ],
    "a classifier in a few kB": HEADLINES["ebp"][1:],
    "a trained Keras network in the fewest": HEADLINES["compression"][:4],
}
"""Likewise of docs/which.md, by the beginning of the question."""


@pytest.mark.parametrize("package", HEADLINES)
def test_figures_of_the_readme_are_those_of_the_results(package: str) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (paragraph,) = (part for part in re.split(r"\n(?=\*\*)", readme) if f": [`{package}`](" in part)
    check_figures(paragraph, HEADLINES[package])


@pytest.mark.parametrize("question", ANSWERS)
def test_figures_of_answers_are_those_of_the_results(question: str) -> None:
    lines = (ROOT / "docs" / "which.md").read_text(encoding="utf-8").splitlines()
    (line,) = (line for line in lines if line.startswith(f"| {question}"))
    check_figures(line, ANSWERS[question])


def check_figures(text: str, wanted: list[tuple[str, str, str]]) -> None:
    """Assert that a text has the figures of these cells of results."""
    stored = read_all(ROOT / "results")
    for place, column, spec in wanted:
        table, *first = place.split("|")
        name, table = table.split("/")
        titles, *rows = [list(row) for row in cells(stored[name], table)]
        # A cell that is empty repeats the one above it.
        for above, row in itertools.pairwise(rows):
            row[0] = row[0] or above[0]
        (row,) = (row for row in rows if row[: len(first)] == first)
        (number,) = re.findall(r"-?[\d.]+", row[titles.index(column)].replace(",", ""))[:1]
        shown = format(float(number), spec)
        assert re.search(rf"(?<![\d.]){re.escape(shown)}(?![\d])", text), f"{place}: {column}: {shown}"


OF_NO_RESULT = {"darn": {"1.320", "1.321"}, "compression": {"0.0094"}}
"""Figures of packages' READMEs that are stated with what they follow from: an attempt, a property of a formula."""


@pytest.mark.parametrize("package", PACKAGES)
def test_figures_of_packages_occur_in_results(package: str) -> None:
    """So that one which was measured again cannot stay as it was; whole numbers are settings as often as figures."""
    stored = read_all(ROOT / "results")
    rows = [row for name, result in stored.items() for table in result.tables for row in cells(stored[name], table)]
    numbers = {float(word.replace(",", "")) for row in rows for word in re.findall(r"\d[\d,]*\.?\d*", " ".join(row))}
    known = {format(number, f".{places}f") for number in numbers for places in range(1, 5)}
    text = (ROOT / package / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    figures = set(re.findall(r"(?<![\w.\[/=-])-?(\d[\d,]*\.\d+)(?![\w.])", text))
    assert {figure.replace(",", "") for figure in figures} - known == OF_NO_RESULT.get(package, set())
