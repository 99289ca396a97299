"""The stack of bits: last in, first out, as many bits as the entropy, and a fixed code."""

import builtins
import sys
from typing import Any

import numpy as np
import pytest

from darn.codec import coding
from darn.codec.coding import BitStack
from darn.codec.integer_model import PRECISION_BITS, logit_index, probability_table


def entropy_bits(bits: np.ndarray, logits: np.ndarray) -> float:
    rarer = probability_table()[logit_index(logits)] / 2**PRECISION_BITS
    return -float(np.log2(np.where((bits != 0) == (logits > 0), 1 - rarer, rarer)).sum())


def test_pop_undoes_push(rng: np.random.Generator) -> None:
    logits = 4 * rng.normal(size=(30, 7))
    bits = (rng.random((30, 7)) < 0.5).astype(np.uint8)
    stack = BitStack(b"before")
    stack.push(bits, logits)
    again = BitStack(stack.to_bytes())
    for i in range(30):  # unit by unit, as units that depend on each other need it
        np.testing.assert_array_equal(again.pop(logits[i : i + 1]), bits[i : i + 1])
    assert again.to_bytes() == b"before"


def test_push_undoes_pop_even_of_an_empty_stack(rng: np.random.Generator) -> None:
    logits = rng.normal(size=(60, 5))
    for content in (b"", b"x", b"a few bytes"):
        stack = BitStack(content)
        first, second = stack.pop(logits), stack.pop(2 * logits)
        stack.push(second, 2 * logits)
        stack.push(first, logits)
        assert stack.to_bytes() == content
    np.testing.assert_array_equal(BitStack().pop(logits), logits > 0)


def test_a_copy_is_another_stack(rng: np.random.Generator) -> None:
    logits = rng.normal(size=(40, 5))
    stack = BitStack(b"some bytes")
    other = stack.copy()
    other.push(logits > 1, logits)
    assert stack.to_bytes() == b"some bytes" != other.to_bytes()
    np.testing.assert_array_equal(other.pop(logits), logits > 1)
    assert other.to_bytes() == b"some bytes"


def test_length_is_the_entropy(rng: np.random.Generator) -> None:
    """2^16 bits: within 0.01 %, and the 64 bits of a state."""
    logits = 2 * rng.normal(size=(256, 256))
    bits = (rng.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype(np.uint8)
    stack = BitStack()
    stack.push(bits, logits)
    assert abs(stack.num_bits - entropy_bits(bits, logits)) < 1e-4 * stack.num_bits + 64
    assert stack.num_bits <= 8 * len(stack.to_bytes()) < stack.num_bits + 16


def test_code_of_record() -> None:
    """Files are read by later releases, so the bytes for given bits and logits may not change."""
    i = np.arange(600).reshape(20, 30)
    stack = BitStack(b"start")
    stack.push((i * 7919 % 11 < 4).astype(np.uint8), ((i * 104729) % 4001 - 2000) / 128.0)
    assert stack.to_bytes()[-12:].hex() == "05c284520325faffff5cad62"


def test_zeros_at_the_end() -> None:
    with pytest.raises(ValueError, match="end in zeros: the data are damaged"):
        BitStack(b"a\0")


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    coding._constriction.cache_clear()
    load = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name == "constriction":
            raise ImportError(name)
        return load(name, *rest, **more)

    monkeypatch.delitem(sys.modules, "constriction", raising=False)
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ValueError, match=r"coding needs the package constriction; `pip install"):
        BitStack()
    monkeypatch.undo()
    coding._constriction.cache_clear()
