"""The generator is Philox 4x64-10 word for word, as in NumPy, and streams depend on nothing but their names."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fed_ucbvi.core.sampling.philox import (
    BLOCKS,
    CUTS,
    EPISODES,
    MAX_SEED,
    SERVER,
    new_stream,
    philox,
    uniform,
    unit_interval,
)
from fed_ucbvi.core.types import WordArray

WORDS = st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 2**63, 2**64 - 1])
PURPOSES = (EPISODES, BLOCKS, CUTS, SERVER)


def numpy_generator(counter: tuple[int, int, int, int], key: tuple[int, int]) -> np.random.Philox:
    """NumPy's Philox whose first block is that of ``counter``; it adds one to its counter before every block."""
    number = sum(word << (64 * k) for k, word in enumerate(counter))
    before = (number - 1) % 2**256
    words = np.array([(before >> (64 * k)) % 2**64 for k in range(4)], dtype=np.uint64)
    return np.random.Philox(counter=words, key=np.array(key, dtype=np.uint64))


def our_words(counter: tuple[int, int, int, int], key: tuple[int, int]) -> list[int]:
    c0, c1, c2, c3 = (np.uint64(word) for word in counter)
    return [int(word) for word in philox(c0, c1, c2, c3, np.uint64(key[0]), np.uint64(key[1]))]


def stream(purpose: int = 1, position: int = 0, key: tuple[int, int] = (0, 0)) -> WordArray:
    return new_stream(np.uint64(purpose), np.uint64(position), np.uint64(key[0]), np.uint64(key[1]))


def test_words_are_those_of_numpy_for_many_random_keys_and_counters() -> None:
    rng = np.random.default_rng(0)
    for _ in range(1000):
        c0, c1, c2, c3, k0, k1 = (int(x) for x in rng.integers(2**64, size=6, dtype=np.uint64))
        expected = numpy_generator((c0, c1, c2, c3), (k0, k1)).random_raw(4)
        assert our_words((c0, c1, c2, c3), (k0, k1)) == expected.tolist()


@given(counter=st.tuples(WORDS, WORDS, WORDS, WORDS), key=st.tuples(WORDS, WORDS))
def test_words_are_those_of_numpy_at_the_edges_of_the_range(
    counter: tuple[int, int, int, int], key: tuple[int, int]
) -> None:
    assert our_words(counter, key) == numpy_generator(counter, key).random_raw(4).tolist()


def test_words_are_those_published_with_the_generator() -> None:
    """Known answers of the Random123 distribution for philox4x64-10: all zeros, all ones, the digits of pi."""
    ones = 2**64 - 1
    assert our_words((0, 0, 0, 0), (0, 0)) == [
        0x16554D9ECA36314C,
        0xDB20FE9D672D0FDC,
        0xD7E772CEE186176B,
        0x7E68B68AEC7BA23B,
    ]
    assert our_words((ones, ones, ones, ones), (ones, ones)) == [
        0x87B092C3013FE90B,
        0x438C3C67BE8D0224,
        0x9CC7D7C69CD777B6,
        0xA09CAEBF594F0BA0,
    ]
    assert our_words(
        (0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89),
        (0x452821E638D01377, 0xBE5466CF34E90C6C),
    ) == [0xA528F45403E61D95, 0x38C72DBD566E9788, 0xA5A1610E72FD18B5, 0x57BD43B5E52B7FE6]


@given(purpose=st.sampled_from(PURPOSES), position=WORDS, key=st.tuples(WORDS, WORDS))
def test_a_stream_is_the_sequence_of_numpy_uniforms_of_its_counters(
    purpose: np.uint64, position: int, key: tuple[int, int]
) -> None:
    ours, other = stream(int(purpose), position, key), stream(int(purpose), 0, key)
    expected = np.random.Generator(numpy_generator((0, position, int(purpose), 0), key)).random(11)
    assert [(uniform(other), uniform(ours))[1] for _ in range(11)] == expected.tolist(), "whatever others draw"
    assert MAX_SEED == 2**64 - 1, "any word is a key"


def test_streams_for_different_uses_share_no_number() -> None:
    """Hypothesis: all words differ. 512 different words of 53 bits have a common one with probability 2e-11."""
    names = [
        (purpose, position, (seed, agent))
        for purpose in range(1, 5)
        for position in range(4)
        for seed in range(2)
        for agent in range(2)
    ]
    assert len({int(purpose) for purpose in PURPOSES}) == len(PURPOSES)
    drawn = []
    for name in names:
        one = stream(*name)
        drawn += [uniform(one) for _ in range(8)]
    assert len(set(drawn)) == len(drawn) == 512


@given(word=WORDS)
def test_a_word_becomes_its_upper_53_bits_as_a_fraction(word: int) -> None:
    value = unit_interval(np.uint64(word))
    assert value == math.ldexp(word // 2**11, -53)
    assert 0.0 <= value < 1.0
