"""The generator is Philox 4x64-10 word for word, as in NumPy, and streams depend on nothing but their names."""

from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fed_ucbvi.core.limits import MAX_SEED
from fed_ucbvi.core.sampling import philox
from fed_ucbvi.core.sampling.philox import new_stream, uniform, unit_interval
from fed_ucbvi.core.types import WordArray

WORDS = st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 2**63, 2**64 - 1])
PURPOSES = (philox.EPISODES, philox.BLOCKS, philox.CUTS, philox.SERVER)


def numpy_generator(counter: tuple[int, int, int, int], key: tuple[int, int]) -> np.random.Philox:
    """NumPy's Philox whose first block is that of ``counter``; it adds one to its counter before every block."""
    number = sum(word << (64 * k) for k, word in enumerate(counter))
    before = (number - 1) % 2**256
    words = np.array([(before >> (64 * k)) % 2**64 for k in range(4)], dtype=np.uint64)
    return np.random.Philox(counter=words, key=np.array(key, dtype=np.uint64))


def our_words(counter: tuple[int, int, int, int], key: tuple[int, int]) -> list[int]:
    c0, c1, c2, c3 = (np.uint64(word) for word in counter)
    return [int(word) for word in philox.philox(c0, c1, c2, c3, np.uint64(key[0]), np.uint64(key[1]))]


def stream(purpose: int = 1, position: int = 0, key: tuple[int, int] = (0, 0)) -> WordArray:
    return new_stream(np.uint64(purpose), np.uint64(position), np.uint64(key[0]), np.uint64(key[1]))


@settings(max_examples=1000)
@given(counter=st.tuples(WORDS, WORDS, WORDS, WORDS), key=st.tuples(WORDS, WORDS))
def test_words_are_those_of_numpy(counter: tuple[int, int, int, int], key: tuple[int, int]) -> None:
    assert our_words(counter, key) == numpy_generator(counter, key).random_raw(4).tolist()


def test_words_are_those_published_with_the_generator() -> None:
    """Known answers of the Random123 distribution for philox4x64-10: all zeros, all ones, the digits of pi."""
    pi = "243f6a8885a308d3 13198a2e03707344 a4093822299f31d0 082efa98ec4e6c89 452821e638d01377 be5466cf34e90c6c"
    for counter_and_key, published in (
        (
            "0 " * 6,
            "16554d9eca36314c db20fe9d672d0fdc d7e772cee186176b 7e68b68aec7ba23b",
        ),
        (
            f"{'f' * 16} " * 6,
            "87b092c3013fe90b 438c3c67be8d0224 9cc7d7c69cd777b6 a09caebf594f0ba0",
        ),
        (pi, "a528f45403e61d95 38c72dbd566e9788 a5a1610e72fd18b5 57bd43b5e52b7fe6"),
    ):
        c0, c1, c2, c3, k0, k1 = (int(word, 16) for word in counter_and_key.split())
        assert our_words((c0, c1, c2, c3), (k0, k1)) == [int(word, 16) for word in published.split()]


@given(purpose=st.sampled_from(PURPOSES), position=WORDS, key=st.tuples(WORDS, WORDS))
def test_a_stream_is_numpys_uniforms_of_its_counters(purpose: np.uint64, position: int, key: tuple[int, int]) -> None:
    ours = stream(int(purpose), position, key)
    other = stream(int(purpose), 0, key)
    expected = np.random.Generator(numpy_generator((0, position, int(purpose), 0), key)).random(11)
    assert [(uniform(other), uniform(ours))[1] for _ in range(11)] == expected.tolist(), "whatever others draw"
    assert MAX_SEED == 2**64 - 1, "any word is a key"


def test_streams_for_different_uses_share_no_number() -> None:
    """Hypothesis: all words differ. 512 different words of 53 bits have a common one with probability 2e-11."""
    assert len({int(purpose) for purpose in PURPOSES}) == len(PURPOSES)
    drawn = []
    for purpose, position, seed, agent in itertools.product(range(1, 5), range(4), range(2), range(2)):
        one = stream(purpose, position, (seed, agent))
        drawn += [uniform(one) for _ in range(8)]
    assert len(set(drawn)) == len(drawn) == 512


@given(word=WORDS)
def test_a_word_becomes_its_upper_53_bits_as_a_fraction(word: int) -> None:
    value = unit_interval(np.uint64(word))
    assert value == math.ldexp(word // 2**11, -53)
    assert 0.0 <= value < 1.0
