"""Alignments of sequences: FASTA files as rows of letters, and weights of sequences that are alike.

names, letters = read_fasta("family.fasta")           # letters [N, L]
weights = neighbour_weights(letters)                  # [N], 1 over how many are alike
model = TrackedRBM(50, visible="softmax").fit(letters, sample_weight=weights)
model.score_samples(letters)                          # log p, nats
"""

import gzip
import os
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Alignment", "neighbour_weights", "read_fasta"]

GAP = "-"
UNKNOWN = "BJOUXZ"
"""Letters of proteins that stand for several amino acids, or for none of the twenty."""

_NUCLEOTIDES = "ACGTU"
_ANY_NUCLEOTIDE = "N"

_BLOCK = 1000  # rows that are compared with all others at a time


class Alignment(NamedTuple):
    """Aligned sequences: their names, the first words of their titles, and their letters, [N, L]."""

    names: list[str]
    letters: NDArray[np.str_]


def read_fasta(path: str | os.PathLike[str], *, unknown: str | None = None) -> Alignment:
    """The sequences of an aligned FASTA file, which may be compressed (.gz), with lines of any length.

    Insertions of A2M and A3M files, lower-case letters and dots beside an alignment in capital letters, are left out.

    :param path: of the file.
    :param unknown: letters that are read as gaps; None: `UNKNOWN`, and of an alignment of nothing but nucleotides N; ""
        keeps all letters as they are.
    :raises ValueError: naming the sequence that has another length than the first, or what else is no alignment.
    """
    opened = gzip.open if Path(path).suffix == ".gz" else open
    names: list[str] = []
    lines: list[list[str]] = []
    try:
        with opened(path, "rt", encoding="utf-8-sig", errors="replace") as file:  # titles may be in any encoding
            for number, line in enumerate(file, start=1):
                text = line.strip()
                if text.startswith(">"):
                    names.append((text[1:].split() or [f"sequence {len(names) + 1}"])[0])
                    lines.append([])
                elif text and not text.startswith(";"):
                    if not lines:
                        raise ValueError(f"{path} must begin with a title, >name, got {text[:20]!r} in line {number}.")
                    lines[-1].append("".join(text.split()))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} must be compressed by gzip, and whole ({error}); copy it again.") from error
    # Sequences without what ends them and what is inserted, all of one length.
    if not lines:
        raise ValueError(f"{path} must hold sequences, each after a title >name, got none.")
    sequences = ["".join(parts).rstrip("*") for parts in lines]
    sequences = _columns(sequences)
    length = len(sequences[0])
    for name, sequence in zip(names, sequences, strict=True):
        if len(sequence) != length or not length:
            raise ValueError(
                f"the sequences of {path} must be aligned, all as long as the first, {length} letters, but {name} has "
                f"{len(sequence)}; align them first."
            )
    # Letters that say nothing of a site are gaps.
    letters = np.array([list(sequence) for sequence in sequences])
    if unknown is None:
        is_nucleic = set(np.unique(letters)) <= {*_NUCLEOTIDES, _ANY_NUCLEOTIDE, GAP}
        unknown = _ANY_NUCLEOTIDE if is_nucleic else UNKNOWN
    letters[np.isin(letters, list(unknown))] = GAP
    return Alignment(names, letters)


def _columns(sequences: list[str]) -> list[str]:
    """The sequences without insertions, in capital letters."""
    # Lower-case letters are insertions beside capital ones only: some files are in lower case all over.
    has_insertions = (
        any(letter.isupper() for letter in sequences[0]) and len({len(sequence) for sequence in sequences}) > 1
    )
    if has_insertions or any("." in sequence and any(map(str.isupper, sequence)) for sequence in sequences):
        aligned = ["".join(c for c in sequence if not c.islower() and c != ".") for sequence in sequences]
        if len({len(sequence) for sequence in aligned}) == 1:
            return aligned
    return [sequence.upper().replace(".", GAP) for sequence in sequences]


def neighbour_weights(X: ArrayLike, identity: float = 0.8) -> NDArray[np.float64]:
    """1 / the number of rows that agree with each in a share `identity` of the columns at least, [N, L] to [N].

    A row agrees with itself. As `sample_weight` they let families of close relatives count once; their sum is the
    effective number of sequences.

    :param X: letters, texts or codes.
    :param identity: above 0, at most 1.
    :raises ValueError: if X is no table, or `identity` is out of its range.
    """
    values = np.asarray(X)
    values = values.astype(str) if values.dtype.kind == "O" else values  # None and texts have no order
    if values.ndim != 2 or not values.size:
        raise ValueError(f"X must be [N, L] with at least one row and column, got shape {values.shape}.")
    if not 0 < identity <= 1:
        raise ValueError(f"identity must be above 0 and at most 1, got {identity!r}.")
    levels, codes = np.unique(values, return_inverse=True)
    codes = codes.reshape(values.shape)
    same = np.ceil(identity * values.shape[1] - 1e-9)  # columns
    # sites that agree are products of rows with a column for each letter of each site
    offsets = len(levels) * np.arange(values.shape[1])
    columns, used = np.unique(codes + offsets, return_inverse=True)
    is_letter = np.zeros((len(values), len(columns)), np.float32)
    np.put_along_axis(is_letter, used.reshape(values.shape), 1.0, axis=1)
    # Neighbours of a block of rows at a time.
    counts = np.empty(len(values))
    for start in range(0, len(values), _BLOCK):
        agreeing = is_letter[start : start + _BLOCK] @ is_letter.T
        counts[start : start + _BLOCK] = (agreeing >= same).sum(axis=1)
    return 1.0 / counts
