"""Philox 4x64-10 (Salmon, Moraes, Dror, Shaw 2011), the generator behind every simulated draw.

Counter-based: the words are a function of a key and a counter, so any draw can be made, or made again, in any
order and on any machine. The key is (seed, agent); the counter says what the draw is for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from fed_ucbvi.core.compiling import compiled, intrinsic, types
from fed_ucbvi.core.types import WordArray

EPISODES = np.uint64(1)
BLOCKS = np.uint64(2)
CUTS = np.uint64(3)
SERVER = np.uint64(4)
TIES = np.uint64(5)
"""Purposes, the third word of the counter: no two uses ever share a counter."""

_MULTIPLIER_0 = np.uint64(0xD2E7470EE14C6C93)
_MULTIPLIER_1 = np.uint64(0xCA5A826395121157)
_WEYL_0 = np.uint64(0x9E3779B97F4A7C15)
_WEYL_1 = np.uint64(0xBB67AE8584CAA73B)
_SHIFT = np.uint64(11)
_UNIT = 1.0 / 9007199254740992.0


@intrinsic  # type: ignore[untyped-decorator]
def product(typing_context: Any, a: Any, b: Any) -> Any:
    """The upper and the lower 64 bits of the product of two 64-bit words, by one multiplication."""
    pair = types.UniTuple(types.uint64, 2)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(arguments[0], wide), builder.zext(arguments[1], wide))
        high = builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), word)
        return context.make_tuple(builder, pair, (high, builder.trunc(product, word)))

    return pair(types.uint64, types.uint64), generate


@compiled
def philox(
    c0: np.uint64,
    c1: np.uint64,
    c2: np.uint64,
    c3: np.uint64,
    k0: np.uint64,
    k1: np.uint64,
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Four 64-bit words for the counter ``(c0,c1,c2,c3)`` and the key ``(k0,k1)``."""
    for _ in range(10):
        high0, low0 = product(_MULTIPLIER_0, c0)
        high1, low1 = product(_MULTIPLIER_1, c2)
        c0 = high1 ^ c1 ^ k0
        c1 = low1
        c2 = high0 ^ c3 ^ k1
        c3 = low0
        k0 += _WEYL_0
        k1 += _WEYL_1
    return c0, c1, c2, c3


@compiled
def unit_interval(word: np.uint64) -> float:
    """A word as a number in [0, 1) on the grid of multiples of 2^-53."""
    return float(word >> _SHIFT) * _UNIT


@compiled
def word_at(position: int, w0: np.uint64, w1: np.uint64, w2: np.uint64, w3: np.uint64) -> np.uint64:
    """Word ``position mod 4`` of a block."""
    position &= 3
    if position == 0:
        return w0
    if position == 1:
        return w1
    if position == 2:
        return w2
    return w3


@compiled
def number_of_action(seed: np.uint64, agent: np.uint64, episode: np.uint64, h: int) -> float:
    """The number in [0, 1) by which an agent draws its action at step h of an episode.

    It comes from word ``h mod 4`` of block ``h // 4``.
    """
    w0, w1, w2, w3 = philox(episode, np.uint64(h >> 2), TIES, np.uint64(0), seed, agent)
    return unit_interval(word_at(h, w0, w1, w2, w3))


@compiled
def new_stream(purpose: np.uint64, position: np.uint64, k0: np.uint64, k1: np.uint64) -> WordArray:
    """A stream of words that depends on nothing but its arguments.

    Layout: four buffered words, how many are used, the next block, then position, purpose and key.
    """
    stream = np.empty(10, dtype=np.uint64)
    stream[4] = 4
    stream[5] = 0
    stream[6] = position
    stream[7] = purpose
    stream[8] = k0
    stream[9] = k1
    return stream


@compiled
def uniform(stream: WordArray) -> float:
    """The next number in [0, 1) of the stream."""
    used = stream[4]
    if used == np.uint64(4):
        stream[0], stream[1], stream[2], stream[3] = philox(
            stream[5], stream[6], stream[7], np.uint64(0), stream[8], stream[9]
        )
        stream[5] += np.uint64(1)
        used = np.uint64(0)
    word = stream[used]
    stream[4] = used + np.uint64(1)
    return unit_interval(word)
