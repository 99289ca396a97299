"""The catalogue as a whole: every set is described, checked, and read in each of its views."""

import os
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from gpflow_deep_runs.data import views
from gpflow_deep_runs.data.rows import Rows
from gpflow_deep_runs.data.sets import catalogue, text
from gpflow_deep_runs.data.sets.catalogue import View
from gpflow_deep_runs.data.views import Source

_DATA = os.environ.get("GPFLOW_DEEP_DATA")
_needs_data = pytest.mark.skipif(not _DATA, reason="GPFLOW_DEEP_DATA does not name a folder with the real files")

NEEDS_FILES = [name for name in catalogue.names() if any(not file.is_optional for file in catalogue.get(name).files)]
HAS_CHECKSUM = [name for name in catalogue.names() if any(file.sha256 for file in catalogue.get(name).files)]

CHECKSUMS: dict[tuple[str, View], str] = {  # of the rows: those with which the published results were made
    ("adult", "binary"): "bb0a869f9e12",
    ("airline_nyc", "supervised"): "5101644f3c5e",
    ("amazon_apparel_books", "text"): "784d378ed7b8",
    ("binarized_mnist", "binary"): "2d8bf56505a0",
    ("boston", "supervised"): "2d5c263d5da9",
    ("breast_cancer", "supervised"): "bf364e4c017a",
    ("caltech_silhouettes", "binary"): "d1b2f2b8f39c",
    ("cifar10_jpeg", "images"): "b07e443cdf9d",
    ("concrete", "supervised"): "d9efa9f7b4af",
    ("connect4", "binary"): "173d12f716b0",
    ("diabetes", "supervised"): "0fd8307f8558",
    ("digits", "binary"): "f8b3c53564e6",
    ("digits", "grey"): "d52a8c7b5785",
    ("digits", "images"): "6bfb7d6f5cf8",
    ("digits", "supervised"): "2b2aedcf3354",
    ("energy", "supervised"): "1fc787553e1a",
    ("kin8nm", "supervised"): "84b605df22a2",
    ("mnist", "binary"): "d0f86d3562be",
    ("mnist", "grey"): "d27fb91380ff",
    ("mnist", "images"): "81b5b7068b48",
    ("mnist", "supervised"): "0e866dd0dc77",
    ("movie_reviews", "text"): "3559c0df458e",
    ("naval", "supervised"): "ecac3146d248",
    ("ng20_comp_hw", "text"): "e5b8221ee098",
    ("ng20_elec_med", "text"): "7c60b40b892f",
    ("nips", "binary"): "15b382d86093",
    ("ocr_letters", "binary"): "21cee870da25",
    ("power", "supervised"): "048233740959",
    ("protein", "supervised"): "c402ceed1c99",
    ("rcv1", "binary"): "59adabb80675",
    ("reuters_i6", "text"): "95a34df248f6",
    ("spamassassin", "text"): "e72bdb4409f9",
    ("taxi", "supervised"): "9faef3f03118",
    ("web", "binary"): "22b1c59c950b",
    ("wine", "supervised"): "38d1538ef4d2",
}


def check_rows(data: Rows, view: View) -> None:
    """What `gpflow_deep_runs.data.views` says of each view."""
    for X, Y in data.parts.values():
        assert X.shape[0] > 0
        assert Y is None or Y.shape == (X.shape[0], len(data.target_names) or 1)
    parts = {"supervised": ["train", "valid", "test"], "text": ["all"]}.get(view, ["train", "valid", "test"])
    assert list(data.parts) == parts
    if view == "images":
        for X, Y in data.parts.values():
            assert (X.ndim, X.dtype, Y.dtype) == (4, np.float32, np.int64)
            assert X.min() >= -1
            assert X.max() <= 1
        assert data.image_shape == data.train.X.shape[1:3]
        assert data.train.X.min() == -1
        assert data.train.X.max() == 1
    elif view in ("binary", "grey"):
        X = data.train.X
        assert X.dtype == (np.uint8 if view == "binary" else np.float32)
        assert (X.min(), X.max()) == (0, 1)
        assert data.image_shape is None or np.prod(data.image_shape) == X.shape[1]
        assert data.task == "density"
    else:
        first = next(iter(data.parts.values()))
        assert first.X.dtype == (np.float64 if view == "supervised" else np.float32)
        assert len(data.feature_names) == (first.X.shape[1] if view == "supervised" else 0)
        if data.task != "regression":
            assert set(np.unique(first.Y)) == set(range(len(data.class_names)))


def test_names_of_each_view() -> None:
    for view in get_args(View):
        assert catalogue.names(view) == sorted(n for n in catalogue.names() if view in catalogue.get(n).views)
    assert catalogue.names("grey") == ["digits", "mnist"]
    assert catalogue.names("text") == sorted(text.TASKS)
    assert {"boston", "digits", "mnist", "higgs"} < set(catalogue.names("supervised"))


@pytest.mark.parametrize("name", catalogue.names())
def test_every_set_is_described(name: str) -> None:
    entry, described = catalogue.get(name), catalogue.describe(name)
    assert described.startswith(f"{name}: {entry.about}\nViews: {', '.join(entry.views)}\nFiles: ")
    for file in entry.files:
        assert file.check in described
        assert file.sha256 == "" or len(bytes.fromhex(file.sha256)) == 32
    assert bool(entry.get) == (name in NEEDS_FILES)
    assert entry.about.endswith(".")


@pytest.mark.parametrize("name", NEEDS_FILES)
def test_a_missing_file_says_what_to_get_and_where_to_put_it(name: str, tmp_path: Path) -> None:
    entry = catalogue.get(name)
    for view in entry.views:
        for folder, where in ((None, "no --data_dir was given"), (tmp_path, f"not found in .*{tmp_path.name}")):
            with pytest.raises(ValueError, match=rf"data set '{name}' needs .*{where}\. (Get|It holds) .*=FOLDER\.$"):
                catalogue.read(name, view, folder)


@pytest.mark.parametrize("name", HAS_CHECKSUM)
def test_a_file_with_another_checksum_is_refused(name: str, tmp_path: Path) -> None:
    entry = catalogue.get(name)
    for file in entry.files:
        path = tmp_path / file.path
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"not this file")
    for view in entry.views:
        first = next(file for file in entry.files if file.sha256)
        with pytest.raises(ValueError, match=rf"{first.name} must have the SHA-256 {first.sha256}, got .*get it again"):
            catalogue.read(name, view, tmp_path)


@pytest.mark.parametrize("name", sorted({*catalogue.names()} - {*NEEDS_FILES}))
def test_sets_without_files_are_read_in_each_view(name: str) -> None:
    for view in catalogue.get(name).views:
        data = views.load(Source(dataset=name), view)
        check_rows(data, view)
        assert data.sha256.startswith(CHECKSUMS[name, view])


@_needs_data
@pytest.mark.parametrize(("name", "view"), [key for key in CHECKSUMS if key[0] in HAS_CHECKSUM])
def test_the_real_files_give_the_rows_of_the_published_results(name: str, view: View) -> None:
    data = views.load(Source(dataset=name, data_dir=_DATA), view)
    check_rows(data, view)
    assert data.sha256.startswith(CHECKSUMS[name, view])


def test_unknown_names_views_and_folders(tmp_path: Path) -> None:
    for function in (catalogue.get, catalogue.describe):
        with pytest.raises(ValueError, match=r"--dataset must be one of adult, .*, got 'bosten'; for own data use"):
            function("bosten")
    with pytest.raises(ValueError, match=r"--dataset must be one of digits, mnist, got 'bosten'; for own data use"):
        catalogue.read("bosten", "grey")
    with pytest.raises(ValueError, match=r"have the view 'text' here, as amazon.*; 'boston' has supervised only"):
        catalogue.read("boston", "text")
    with pytest.raises(ValueError, match="--data_dir must be a folder or a file, but there is nothing at"):
        catalogue.read("boston", "supervised", tmp_path / "absent")


def test_the_documentation_shows_the_catalogue() -> None:
    views_of_sets = get_args(View)
    lines = [f"| name | {' | '.join(views_of_sets)} | files |", "| --- " * (len(views_of_sets) + 2) + "|"]
    for name in catalogue.names():
        entry = catalogue.get(name)
        files = []
        for file in entry.files:
            paths = " or ".join(f"`{path}`" for path in (file.path, *file.alternatives))
            files.append(f"{paths}, or none" if file.is_optional else paths)
        cells = ["yes" if view in entry.views else "" for view in views_of_sets]
        lines.append(f"| `{name}` | {' | '.join(cells)} | {', '.join(files) or 'none'} |")
    table = "\n".join(lines)
    page = Path(__file__).parents[4] / "docs" / "data.md"
    assert table in page.read_text(encoding="utf-8"), f"write this table to {page}:\n{table}"
