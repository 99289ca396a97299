"""What is told of a packed network, from numbers made up so that each has its own place."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest

import compression as bc
from compression.files.pack import Packed, PackedNetwork
from compression.graph.sizes import Size
from compression.report import (
    PUBLISHED,
    bit_histograms,
    details,
    input_mask,
    layers,
    notes,
    published,
    score_histograms,
    table,
)
from compression.rounding.bits import FixedPoint
from compression.rounding.rates import Rates
from gpflow_deep_base.text import aligned, within
from tests.terminal import check_width


def codes(*significant: int) -> list[FixedPoint]:
    return [FixedPoint(np.ones((2, 2), np.int32), t, 3) for t in significant]


@pytest.fixture
def packed() -> Packed:
    file = Path("somewhere.bcz")
    return Packed(
        networks={
            "masked": PackedNetwork(1.0, 2.0),
            "shrunk": PackedNetwork(1.25, 2.125, file, 4000, 10.04),
            "rule": PackedNetwork(1.5, 2.25, file, 3000, 20.0),
            "search": PackedNetwork(1.75, 2.375, file, 2000, 30.0),
            "book 16": PackedNetwork(3.0, 4.0, file, 1000, 99.6),
            "book 8": PackedNetwork(5.0, 6.0, file, 900, 111.1),
        },
        model=keras.Sequential([keras.Input([3]), keras.layers.Dense(2)]),
        architecture=(7, 5),
        kept_weights=(70, 10),
        original=Size(8000, 8100),
        thresholds={"first": 1.5, "second": -0.25},
        scores={"first": np.array([-1.0, 0.5, 30.0], np.float32), "second": np.array([[-50.0, 2.0]], np.float32)},
        variances=[np.full(70, 2.0**-6), np.array([2.0**-4] * 5 + [2.0**-10] * 5)],
        codes={"rule": codes(5, 6), "search": codes(1, 0)},
        chosen="search",
        rates={"rule": Rates(100.04, 200.0, 300.0), "search": Rates(100.04, 400.0, 300.0)},
    )


def test_details_are_all_numbers_in_the_units_they_say(packed: Packed) -> None:
    found = json.loads(json.dumps(details(packed)))
    assert found["architecture"] == [7, 5]
    assert found["kept_weights"] == [70, 10]
    assert (found["original_weights"], found["original_parameters"]) == (8000, 8100)
    assert found["thresholds"] == {"first": 1.5, "second": -0.25}
    assert found["bits"] == {"rule": [9, 10], "search": [5, 4]}
    # 2 V < 2^-t: t < 5 and, for the mean variance 2^-5 + 2^-11 of the second layer, t < 3.95
    assert found["significant_bits_of_mean_variance"] == [4, 3]
    assert found["rates_as_in_paper"]["rule"] == {"pruning": 100.04, "fast": 200.0, "maximum": 300.0}
    assert found["networks"]["masked"] == {
        "valid_percent": 1.0,
        "test_percent": 2.0,
        "bytes": None,
        "file_rate": None,
    }
    assert found["networks"]["book 8"] == {
        "valid_percent": 5.0,
        "test_percent": 6.0,
        "bytes": 900,
        "file_rate": 111.1,
    }


def test_table_has_a_row_for_each_network(packed: Packed) -> None:
    check_width(within("\n".join([*notes(packed, PUBLISHED["lenet5", "ghs"]), aligned(table(packed))])))
    assert table(packed) == [
        ["", "valid %", "test %", "bytes", "times smaller"],
        ["masked", "1.00", "2.00", "", ""],
        ["shrunk", "1.25", "2.12", "4000", "10.0"],
        ["rule", "1.50", "2.25", "3000", "20.0"],
        ["search", "1.75", "2.38", "2000", "30.0"],
        ["book 16", "3.00", "4.00", "1000", "99.6"],
        ["book 8", "5.00", "6.00", "900", "111.1"],
    ]


def test_each_kernel_has_a_row_whatever_its_layer_is(packed: Packed) -> None:
    """A layer with several kernels, of which no unit can be removed, and a dense one."""
    inputs = keras.Input([5, 4])
    hidden = keras.layers.LSTM(2, name="recurrent")(inputs)
    network = keras.Model(inputs, keras.layers.Dense(3, name="last")(hidden))
    several = {"search": codes(1, 0, 2)}
    assert layers(packed._replace(model=network, kept_weights=(32, 16, 1006), codes=several)) == [
        ["layer", "kernel", "weights", "bits", "bytes"],
        ["recurrent", "4 x 8", "32", "5", "20"],
        ["recurrent", "2 x 8", "16", "4", "8"],
        ["last", "2 x 3", "1,006", "6", "755"],
    ]


def test_products_are_counted_before_and_after(packed: Packed) -> None:
    """The network that is left takes 3 x 2 products."""
    assert "multiplications" not in notes(packed)[0]
    known = packed._replace(original=Size(8000, 8100, 15))
    assert notes(known)[0] == "architecture 7-5, 80 weights, 2.5 times fewer multiplications"
    found = details(known)
    assert (found["original_multiplications"], found["multiplications"]) == (15, 6)


def test_notes_name_bits_and_rates_and_what_was_published(packed: Packed) -> None:
    lines = notes(packed)
    assert lines == [
        "architecture 7-5, 80 weights",
        "bits (rule) 9-10; rates as in the paper: pruning 100.0, fast 200.0, maximum 300.0",
        "bits (search) 5-4; rates as in the paper: pruning 100.0, fast 400.0, maximum 300.0",
    ]
    assert notes(packed, PUBLISHED["lenet5", "ghs"]) == [
        *lines,
        "published: 1.0 %; pruning 156, fast 419, maximum 771",
    ]


@pytest.mark.parametrize(
    ("network", "dataset", "is_found"),
    [
        ("lenet5", "mnist", True),
        ("lenet5", "digits", False),
        ("own", "mnist", False),
        ("lenet300", "cifar10", False),
    ],
)
def test_published_numbers_are_of_the_same_data(network: str, dataset: str, is_found: bool) -> None:
    assert (published(network, "gnj", dataset) is not None) == is_found


def test_histograms_of_scores(packed: Packed) -> None:
    found = score_histograms(packed)
    assert {name: histogram.marks for name, histogram in found.items()} == {
        "first": {"threshold 1.50": 1.5},
        "second": {"threshold -0.25": -0.25},
    }
    counts, edges, _ = found["first"]
    assert (counts.shape, edges.shape, counts.sum()) == ((50,), (51,), 3)
    assert edges[[0, -1]] == pytest.approx([-1.0, 20.0])  # 30 is counted at 20
    assert counts[[0, 3, -1]].tolist() == [1, 1, 1]  # 0.5 is at 1.5 / 21 of the width
    assert found["second"].edges[0] == pytest.approx(-20.0)


def test_histograms_of_bits(packed: Packed) -> None:
    found = bit_histograms(packed)
    assert list(found) == ["layer 1", "layer 2"]
    assert found["layer 2"].marks == {"rule": 6.0, "search": 0.0}
    expected = np.zeros(24, int)
    expected[[2, 8]] = 5  # 2 V = 2^-3 and 2^-9
    np.testing.assert_array_equal(found["layer 2"].counts, expected)
    np.testing.assert_array_equal(found["layer 2"].edges, np.arange(-0.5, 24))


def test_mask_of_inputs_follows_two_selections() -> None:
    """Of 2 x 2 pixels with 2 channels: pixels 0 and 1 whole, the second channel of pixel 3; of these not the first."""
    layers = [keras.layers.Flatten(), bc.SelectInputs([0, 1, 2, 3, 7]), bc.SelectInputs([1, 2, 3, 4])]
    model = keras.Sequential([keras.Input([2, 2, 2]), *layers, keras.layers.Dense(2)])
    for network in (model, bc.portable(model)):
        mask = input_mask(network)
        assert mask is not None
        np.testing.assert_array_equal(mask, [[0.5, 1.0], [0.0, 0.5]])


def test_no_mask_of_convolutions_and_tables() -> None:
    layers = [keras.layers.Conv2D(2, 2), keras.layers.Flatten(), keras.layers.Dense(2)]
    assert input_mask(keras.Sequential([keras.Input([4, 4, 1]), *layers])) is None
    assert input_mask(keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])) is None
