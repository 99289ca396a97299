"""Alignments: FASTA files of several kinds, and weights against a loop over pairs."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from rbm_tracking.use.alignment import neighbour_weights, read_fasta


def test_lines_of_any_length_blank_ones_and_windows_ends_are_read(tmp_path: Path) -> None:
    text = ">one  le prémier\nACDX-\nEF\n\n>two\r\nacd.-ef\r\n;a remark\n>\nAC D--EF*\n"
    (tmp_path / "a.fasta").write_bytes(b"\xef\xbb\xbf" + text.encode("latin-1"))
    with gzip.open(tmp_path / "a.fasta.gz", "wt", encoding="utf-8") as file:
        file.write(text)
    for name in ("a.fasta", "a.fasta.gz"):
        names, letters = read_fasta(tmp_path / name)
        assert names == ["one", "two", "sequence 3"]
        assert ["".join(row) for row in letters] == ["ACD--EF", "ACD--EF", "ACD--EF"]
    assert "".join(read_fasta(tmp_path / "a.fasta", unknown="").letters[0]) == "ACDX-EF"


def test_nucleotides_keep_their_u(tmp_path: Path) -> None:
    (tmp_path / "rna.fasta").write_text(">a\nACGU\n>b\nan-u\n")
    assert ["".join(row) for row in read_fasta(tmp_path / "rna.fasta").letters] == ["ACGU", "A--U"]


def test_insertions_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.a3m").write_text(">q\nACDE\n>h\nAkkC-E\n>g\n-CDEq\n")
    assert ["".join(row) for row in read_fasta(tmp_path / "a.a3m").letters] == ["ACDE", "AC-E", "-CDE"]
    (tmp_path / "a.a2m").write_text(">q\nA..CDE.\n>h\nAkkC-E.\n>g\n-..CDEq\n")
    assert ["".join(row) for row in read_fasta(tmp_path / "a.a2m").letters] == ["ACDE", "AC-E", "-CDE"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must hold sequences, each after a title >name, got none"),
        ("ACD\n", "must begin with a title, >name, got 'ACD' in line 1"),
        (">a\nACD\n>b\nAC\n", "all as long as the first, 3 letters, but b has 2; align them first"),
        (">a\n>b\n", "0 letters, but a has 0"),
    ],
)
def test_files_that_are_no_alignment_say_so(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.fasta").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_fasta(tmp_path / "a.fasta")


def test_a_compressed_file_that_is_cut_says_so(tmp_path: Path) -> None:
    whole = gzip.compress(b">a\nACD\n>b\nAC-\n")
    for content in (whole[:-9], b">a\nACD\n", whole[:12] + b"\xff" * 30):
        (tmp_path / "a.fasta.gz").write_bytes(content)
        with pytest.raises(ValueError, match="must be compressed by gzip, and whole"):
            read_fasta(tmp_path / "a.fasta.gz")


@pytest.mark.parametrize("identity", [0.5, 0.8, 1.0])
def test_weights_are_one_over_the_neighbours(identity: float, rng: np.random.Generator) -> None:
    parents = rng.integers(0, 4, (5, 10))
    rows = np.where(rng.random((60, 10)) < 0.15, rng.integers(0, 4, (60, 10)), parents[rng.integers(0, 5, 60)])
    counts = [sum(np.mean(row == other) >= identity - 1e-9 for other in rows) for row in rows]
    np.testing.assert_allclose(neighbour_weights(rows, identity), 1 / np.array(counts))
    np.testing.assert_allclose(neighbour_weights(np.array(list("ACDE"))[rows], identity), 1 / np.array(counts))
    with_gaps = np.array(["A", "C", "D", None], object)[rows]
    np.testing.assert_allclose(neighbour_weights(with_gaps, identity), 1 / np.array(counts))


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match=r"X must be \[N, L\]"):
        neighbour_weights(["ACD", "ACE"])
    with pytest.raises(ValueError, match=r"identity must be above 0 and at most 1, got 1\.5"):
        neighbour_weights(np.zeros((2, 2)), 1.5)
