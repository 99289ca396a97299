#!/usr/bin/env python3
"""Write tables as Parquet, which `gpflow-deep train --stream` reads: from delimited text, TFRecord and NPZ files.

    gpflow-deep convert --data="trips/*.csv" --output=trips_parquet
    gpflow-deep train --stream --data=trips_parquet --target=fare --run_dir=runs/fares

Columns of plain numbers become numbers; other texts (levels, dates, numbers with units) stay as they are written and
are read when they are used. What was written is read back and compared before --output gets its name: it is all there,
or not at all.
"""

import functools
from dataclasses import dataclass
from typing import Literal

import gpflow_deep_runs.early  # noqa: F401 (what is wrong is said before TensorFlow starts)
from gpflow_deep_runs import cli
from gpflow_deep_runs.data.streams.convert import convert
from gpflow_deep_runs.data.table.spec import FileSpec, TableSpec


@dataclass(frozen=True)
class Flags:
    """Write tables as Parquet, which --stream reads.

    :param data: files of delimited text (packed or not), .tfrecord or .npz: a file, a folder, a pattern, or several
        with commas between them.
    :param output: new folder for the Parquet files, which get the names of the files.
    :param rows_per_group: rows that are read together; --shuffle_rows of a stream permutes several such groups.
    :param encoding: of a text, such as windows-1252; found out if not given.
    :param names: of the columns of files that do not have them; x0, x1, ... if not given.
    :param skip_rows: lines above the line of names in a text; found out if not given.
    :param max_bytes: how much a packed file may unpack to; 100 MB and 20 times its size if not given.
    :param bad_rows: what to do with lines of too many or too few values; drop leaves them out.
    """

    data: str
    output: str
    rows_per_group: int = 2**15
    encoding: str = ""
    names: tuple[str, ...] = ()
    skip_rows: int | None = None
    max_bytes: int | None = None
    bad_rows: Literal["error", "drop"] = "error"


def main(flags: Flags) -> None:
    """Convert, and say what was read."""
    spec = TableSpec(
        bad_rows=flags.bad_rows,
        file=FileSpec(flags.encoding, flags.names, max_bytes=flags.max_bytes, skip_rows=flags.skip_rows),
    )
    conversion = convert(flags.data, flags.output, spec=spec, rows_per_group=flags.rows_per_group)
    for note in conversion.said:
        print(note)
    print(f"numbers: {', '.join(conversion.numeric) or 'none'}")
    print(f"texts: {', '.join(conversion.texts) or 'none'}")
    print(f"written to {flags.output}: {len(conversion.files)} Parquet files, {conversion.num_rows:,} rows")


command = functools.partial(cli.run, main)

if __name__ == "__main__":
    command()
