"""A known data set, or a file, as rows in the view that a model needs.

data = load(Source(dataset="boston"), "supervised", split=3)
data.train.X, data.valid.Y, data.sizes
load(Source(data="houses.csv"), "supervised", table=TableSpec(target=("price",), missing="impute"))

| view         | X                                      | Y                     | parts                               |
|--------------|----------------------------------------|-----------------------|-------------------------------------|
| "supervised" | float64 [n, D], units of the source    | see `Rows.task`       | by `split`; or "all" if it is None  |
| "binary"     | uint8 [n, D], zeros and ones           | classes [n, 1] or None| of the source                       |
| "grey"       | float32 [n, D], intensities in [0, 1]  | None                  | those of the binary view            |
| "images"     | float32 [n, H, W, C] in [-1, 1]        | int64 [n, 1]          | `num_valid` of the training images  |
| "continuous" | float32 [n, D], standardised            | None                  | "train", "valid", "test"            |
| "text"       | float32 CSR [n, D], words in documents | int64 [n, 1]          | "all", for `Rows.folds`             |
"""

from dataclasses import dataclass
from typing import Literal

from gpflow_deep_runs.data import tables
from gpflow_deep_runs.data.density.bits import read_bits
from gpflow_deep_runs.data.density.continuous import read_continuous, standardised
from gpflow_deep_runs.data.files.documents import TextSpec, is_documents, read_documents
from gpflow_deep_runs.data.rows import Rows, divide, warn_of_few
from gpflow_deep_runs.data.sets import catalogue, images
from gpflow_deep_runs.data.sets.catalogue import View, names
from gpflow_deep_runs.data.table.spec import TableSpec

__all__ = ["Source", "TableSpec", "TextSpec", "View", "check_table", "load", "names"]


@dataclass(frozen=True)
class Source:
    """Which data.

    :param dataset: name of a known data set.
    :param data_dir: folder with the files of the known data sets.
    :param data: own data in place of --dataset: a file .csv, .tsv, .txt, .dat, .data, .test (also packed), .parquet,
        .feather, .npz, .jsonl, .json, .xlsx or .dta; where texts are classified also a sparse matrix of SciPy.
    """

    dataset: str | None = None
    data_dir: str | None = None
    data: str | None = None

    def __post_init__(self) -> None:
        if self.dataset is not None and self.data is not None:
            raise ValueError(f"give --dataset or --data, not both, got {self.dataset!r} and {self.data!r}.")


def check_table(source: Source, table: TableSpec, view: View | Literal["continuous"] = "supervised") -> None:
    """:raises ValueError: if flags describe a table, but there is none; names the first one."""
    if table.given() and (source.data is None or view not in ("supervised", "binary", "continuous", "text")):
        raise ValueError(f"--{table.given()[0]} describes your own table; give it with --data, or leave it out.")


def load(
    source: Source,
    view: View | Literal["continuous"],
    *,
    table: TableSpec = TableSpec(),
    texts: TextSpec = TextSpec(),
    default: str = "digits",
    split: int | None = 0,
    valid_fraction: float = 0.1,
    seed: int = 0,
    num_valid: int = 5000,
    max_images: int | None = None,
    bins: int | None = None,
) -> Rows:
    """Read what `source` names; warns of fewer than ten test rows.

    :param table: of "supervised" and "binary": how the columns of `source.data` are read; of "text" which are used.
    :param texts: of "text": how documents of `source.data` become rows.
    :param default: the data set if `source` names nothing.
    :param split: of "supervised": see `rows.divide`; None leaves the rows in one part "all", for `Rows.folds`.
    :param valid_fraction: of "supervised": see `rows.divide`.
    :param seed: likewise.
    :param num_valid: of "images": training images to set aside for validation, but at most a tenth of them; which ones
        depends on the data set only.
    :param max_images: of "images": use only so many training images (before some are set aside) and test images.
    :param bins: of "binary": ordered bins of a column of numbers of `source.data`, at most; None: they are refused.
    :raises ValueError: as the readers; a known set without this view is named with those that have it.
    """
    check_table(source, table, view)
    name = source.dataset or default
    is_known = source.data is None
    # Known sets come from the catalogue, own data from the reader of the view.
    if view == "supervised":
        data = catalogue.read(name, view, source.data_dir) if is_known else tables.read_table(source.data, table)
        data = data if split is None else divide(data, split=split, valid_fraction=valid_fraction, seed=seed)
    elif view == "continuous":
        known_rows = catalogue.read(name, "supervised", source.data_dir) if is_known else None
        data = read_continuous(str(source.data), table) if known_rows is None else standardised(known_rows)
    elif view == "images":
        data = catalogue.read(name, view, source.data_dir) if is_known else images.read_own(str(source.data))
        largest = images.LARGEST.get(name, 255) if is_known else 255
        data = images.prepared(data, largest, num_valid=num_valid, max_images=max_images)
    elif is_known:
        data = catalogue.read(name, view, source.data_dir)
    elif view == "binary":
        data = read_bits(str(source.data), table, bins=bins)
    elif view == "text" and is_documents(str(source.data)):
        data = read_documents(str(source.data), texts, table)
    else:
        raise ValueError(
            f"--data={source.data} cannot be read as {view!r}; give --dataset, one of {', '.join(names(view))}."
        )
    warn_of_few(data)
    return data
