"""Hidden units in another order: the same outputs, and where the order is not free, the same network."""

import keras
import numpy as np

from compression.files.container import bcz_bytes, kernels_of
from compression.graph.removal.ordering import ordered
from compression.rounding.codebook import codebook

layers = keras.layers


def randomise(model: keras.Model, rng: np.random.Generator, zeros: float = 0.6) -> keras.Model:
    values = [rng.normal(size=w.shape) * (rng.uniform(size=w.shape) >= zeros) for w in model.get_weights()]
    model.set_weights([w.astype(np.float32) for w in values])
    return model


def test_units_are_sorted_and_outputs_stay(rng: np.random.Generator) -> None:
    """Through pooling, a flattened image, a transposed convolution and activations."""
    model = randomise(
        keras.Sequential(
            [
                keras.Input([6, 6, 2]),
                layers.Conv2DTranspose(7, 2, activation="relu"),
                layers.Conv2D(5, 2),
                layers.ReLU(),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dense(9, "tanh"),
                layers.Dense(3),
            ]
        ),
        rng,
    )
    new = ordered(model)
    x = rng.normal(size=(4, 6, 6, 2)).astype(np.float32)
    np.testing.assert_allclose(new(x), model(x), rtol=0, atol=1e-4)
    last = new.layers[-2].kernel.numpy()
    counts = np.count_nonzero(last, axis=0) + np.count_nonzero(new.layers[-1].kernel.numpy(), axis=1)
    assert np.all(np.diff(counts) <= 0)
    changed = [not np.array_equal(a, b) for a, b in zip(kernels_of(model), kernels_of(new), strict=True)]
    assert all(changed)


def test_an_order_that_is_not_free_stays(rng: np.random.Generator) -> None:
    """Sums, layers without a partner, softmax over units, and outputs."""
    inputs = keras.Input([4])
    a = layers.Dense(4)(inputs)
    b = layers.Dense(4, "softmax")(layers.Add()([a, inputs]))
    model = randomise(keras.Model(inputs, [layers.Dense(3)(b), a]), rng)
    for now, then in zip(ordered(model).get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(now, then)


def test_a_sparse_network_takes_fewer_bytes(rng: np.random.Generator) -> None:
    """Units of very different density: with their order, a part of log2(200!) = 156 bytes goes."""
    model = keras.Sequential([keras.Input([80]), layers.Dense(200, use_bias=False), layers.Dense(10)])
    density = rng.uniform(size=200) ** 4
    kept = [rng.uniform(size=(80, 200)) < density, rng.uniform(size=(200, 10)) < density[:, None]]
    model.set_weights([kept[0].astype(np.float32), kept[1].astype(np.float32), np.zeros(10, np.float32)])
    sizes = [len(bcz_bytes(n, [codebook(w, 2) for w in kernels_of(n)])) for n in (model, ordered(model))]
    assert sizes[1] < sizes[0] - 40
