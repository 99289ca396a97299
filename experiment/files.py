"""Files that are whole or absent, and JSON: of the ground floor, under the name they had."""

from gpflow_deep_base.container import read_npz
from gpflow_deep_base.files import (
    atomic_path,
    jsonable,
    make_folder,
    read_jsonl,
    sha256,
    sync_file,
    sync_folder,
    write_json,
    write_text,
)

__all__ = [
    "atomic_path",
    "jsonable",
    "make_folder",
    "read_jsonl",
    "read_npz",
    "sha256",
    "sync_file",
    "sync_folder",
    "write_json",
    "write_text",
]
