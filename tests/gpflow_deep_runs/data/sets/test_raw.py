from pathlib import Path

import numpy as np
import pytest

from gpflow_deep_runs.data.sets import files as raw
from tests.gpflow_deep_runs.data.sets.formats import idx


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PNG", "must be an idx file of bytes"),
        (b"\0\0\x08\x03\0\0", "is not complete: 6 bytes"),
        (idx(np.zeros((2, 3), np.uint8))[:-1], r"must hold \(2, 3\) bytes after its header, got 5"),
    ],
)
def test_bad_idx_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        raw.parse_idx(content, tmp_path / "file")


def test_idx_file(tmp_path: Path, rng: np.random.Generator) -> None:
    array = rng.integers(0, 256, (3, 2, 5), np.uint8)
    np.testing.assert_array_equal(raw.parse_idx(idx(array), tmp_path / "file"), array)


def test_pixels_are_named_row_by_row() -> None:
    assert raw.pixel_names(2) == ("pixel_0_0", "pixel_0_1", "pixel_1_0", "pixel_1_1")
