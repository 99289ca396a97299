"""Compression rates: all numbers of Table 2 for the two group priors, and counting by hand."""

from itertools import pairwise
from math import floor
from pathlib import Path

import pytest

from compression.rounding.rates import file_rate, paper_rates

LENET_300 = 784 * 300 + 300 * 100 + 100 * 10
LENET_5 = 25 * 20 + 25 * 20 * 50 + 800 * 500 + 500 * 10
VGG_MAPS = (64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512)


def dense(*sizes: int) -> list[int]:
    """Weights of dense layers between layers of these sizes."""
    return [a * b for a, b in pairwise(sizes)]


def lenet_5(maps_1: int, maps_2: int, inputs: int, units: int) -> list[int]:
    return [25 * maps_1, 25 * maps_1 * maps_2, inputs * units, units * 10]


def vgg(*sizes: int) -> list[int]:
    """13 convolutions of 3 x 3, then dense layers; the last two sizes are inputs of dense layers."""
    maps, (inputs, units) = sizes[:13], sizes[13:]
    return [9 * a * b for a, b in pairwise((3, *maps))] + dense(inputs, units, 10)


VGG = sum(9 * a * b for a, b in pairwise((3, *VGG_MAPS))) + 512 * 512 + 512 * 10


@pytest.mark.parametrize(
    ("original", "kept", "bits", "printed"),
    [
        (LENET_300, dense(278, 98, 13, 10), (8, 9, 14), (9, 36, 58)),
        (LENET_300, dense(311, 86, 14, 10), (13, 11, 10), (9, 23, 59)),
        # Table 1 prints 88 inputs of the first dense layer; only 81 gives the rates of Table 2.
        (LENET_5, lenet_5(8, 13, 81, 13), (18, 10, 7, 9), (108, 361, 573)),
        (LENET_5, lenet_5(5, 10, 76, 16), (10, 10, 14, 13), (156, 419, 771)),
        (
            VGG,
            vgg(63, 64, 128, 128, 245, 155, 63, 26, 24, 20, 14, 12, 11, 11, 15),
            (10, 10, 10, 10, 8, 8, 8, 5, 5, 5, 5, 5, 6, 7, 11),
            (14, 56, 95),
        ),
        (
            VGG,
            vgg(51, 62, 125, 128, 228, 129, 38, 13, 9, 6, 5, 6, 6, 6, 20),
            (11, 12, 9, 14, 10, 8, 5, 5, 6, 6, 6, 8, 11, 17, 10),
            (18, 59, 116),
        ),
    ],
    ids=["300-100 GNJ", "300-100 GHS", "LeNet-5 GNJ", "LeNet-5 GHS", "VGG GNJ", "VGG GHS"],
)
def test_the_published_rates(
    original: int, kept: list[int], bits: tuple[int, ...], printed: tuple[int, int, int]
) -> None:
    assert tuple(map(floor, paper_rates(original, kept, bits))) == printed


def test_the_originals_have_as_many_weights_as_the_paper_says() -> None:
    assert (LENET_300, LENET_5, VGG) == (266_200, 430_500, 14_977_728)


def test_the_printed_88_does_not_give_the_printed_rates() -> None:
    rates = paper_rates(LENET_5, lenet_5(8, 13, 88, 13), (18, 10, 7, 9))
    assert tuple(map(floor, rates)) == (105, 355, 563)


def test_rates_of_a_network_counted_by_hand() -> None:
    # 60 of 1000 weights: 50 of 4 bits, 10 of 8. Indices of 4 bits into two books of 16 floats.
    rates = paper_rates(1000, [50, 10], [4, 8], k=16)
    assert rates.pruning == pytest.approx(1000 / 60)
    assert rates.fast == pytest.approx(32_000 / (200 + 80))
    assert rates.maximum == pytest.approx(32_000 / (240 + 2 * 16 * 32))


@pytest.mark.parametrize(
    ("original", "kept", "bits", "k"),
    [(10, [5, 5], [3], 2), (10, [], [], 2), (10, [0], [3], 2), (10, [5], [0], 2), (0, [5], [3], 2)],
)
def test_impossible_counts(original: int, kept: list[int], bits: list[int], k: int) -> None:
    with pytest.raises(ValueError, match=r"must (have one number|be positive)"):
        paper_rates(original, kept, bits, k=k)


def test_a_file_counts_with_all_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 80)
    assert file_rate(200, tmp_path / "file") == 10.0


def test_single_weights_are_counted_with_their_indices() -> None:
    """Two layers of 4 x 3 with 5 and 7 weights left: 12 weights and indices, 2 x 4 pointers."""
    rates = paper_rates(24, [5, 7], [8, 8], k=2, csc_columns=[3, 3])
    assert rates.pruning == pytest.approx(24 / (12 + 12 + 8))
    assert rates.fast == pytest.approx(32 * 24 / (12 * 8 + 32 * (12 + 8)))
    assert rates.maximum == pytest.approx(32 * 24 / (12 + 2 * 2 * 32 + 32 * (12 + 8)))
    # Table 2 prints 21 for sparse variational dropout with 2.2 percent of the weights of LeNet-300-100.
    assert floor(paper_rates(LENET_300, [round(0.022 * LENET_300)], [32], csc_columns=[410]).pruning) in (21, 22)
