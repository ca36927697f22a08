"""Random numbers, to the bit those that NumPy draws from its generator SFC64, without a call for each.

A state is six words: the three of the generator, its counter, whether half of a word is left over, and that half.
"""

import math
from typing import Any

import numpy as np
from numba.np.random import _constants as ziggurat

from covshift.support.arrays import Array
from covshift.support.jit import kernel

WITHIN, WIDTH, HEIGHT = ziggurat.ki_double, ziggurat.wi_double, ziggurat.fi_double
TAIL, PER_TAIL = ziggurat.ziggurat_nor_r, ziggurat.ziggurat_nor_inv_r
UNIT = 1.0 / (1 << 53)

Words = tuple[np.uint64, np.uint64, np.uint64, np.uint64]


@kernel
def step(a: np.uint64, b: np.uint64, c: np.uint64, count: np.uint64) -> tuple[np.uint64, Words]:
    """Return the next word, and the state after it."""
    word = a + b + count
    turned = (c << np.uint64(24)) | (c >> np.uint64(40))
    return word, (b ^ (b >> np.uint64(11)), c + (c << np.uint64(3)), turned + word, count + np.uint64(1))


@kernel
def unit(word: np.uint64) -> float:
    """Return a word as a number in [0, 1)."""
    return np.int64(word >> np.uint64(11)) * UNIT


@kernel
def uniforms(state: Array, low: float, spread: float, out: Array) -> None:
    """Fill an array with numbers from `low` on, `spread` wide."""
    words = (state[0], state[1], state[2], state[3])
    for i in range(out.size):
        word, words = step(*words)
        out[i] = low + spread * unit(word)
    state[0], state[1], state[2], state[3] = words


@kernel
def normals(state: Array, out: Array) -> None:
    """Fill an array with standard normal numbers, by the ziggurat of NumPy."""
    words = (state[0], state[1], state[2], state[3])
    for i in range(out.size):
        word, words = step(*words)
        layer, within = word & np.uint64(255), (word >> np.uint64(9)) & np.uint64((1 << 52) - 1)
        x = np.int64(within) * WIDTH[layer]
        out[i] = -x if word & np.uint64(256) else x
        if within >= WITHIN[layer]:
            out[i], words = outside(word, words)
    state[0], state[1], state[2], state[3] = words


@kernel
def outside(word: np.uint64, words: Words) -> tuple[float, Words]:
    """Return the normal number of a word that falls outside of its layer, as about one in a hundred does."""
    while True:
        layer, within = word & np.uint64(255), (word >> np.uint64(9)) & np.uint64((1 << 52) - 1)
        x = np.int64(within) * WIDTH[layer]
        signed = -x if word & np.uint64(256) else x
        if within < WITHIN[layer]:
            return signed, words
        first, words = step(*words)
        if layer > 0:
            top, bottom = HEIGHT[layer - np.uint64(1)], HEIGHT[layer]
            if (top - bottom) * unit(first) + bottom < math.exp(-0.5 * x * x):
                return signed, words
        else:
            while True:
                second, words = step(*words)
                far, depth = -PER_TAIL * math.log1p(-unit(first)), -math.log1p(-unit(second))
                if depth + depth > far * far:
                    return -(TAIL + far) if (within >> np.uint64(8)) & np.uint64(1) else TAIL + far, words
                first, words = step(*words)
        word, words = step(*words)


@kernel
def half_word(state: Array) -> Any:
    """Return the next 32 bits: the lower half of a word, and at the next call its upper half."""
    if state[4]:
        state[4] = np.uint64(0)
        return state[5]
    word, words = step(state[0], state[1], state[2], state[3])
    state[0], state[1], state[2], state[3] = words
    state[4], state[5] = np.uint64(1), word >> np.uint64(32)
    return word & np.uint64(0xFFFFFFFF)


@kernel
def whole_numbers(state: Array, low: int, count: int, out: Array) -> None:
    """Fill an array with whole numbers from `low` on, `count` of them equally likely, by Lemire's multiplication."""
    if count == 1:
        out[:] = low
        return
    choices, lower = np.uint64(count), np.uint64(0xFFFFFFFF)
    least = ((np.uint64(1) << np.uint64(32)) - choices) % choices
    for i in range(out.size):
        product = half_word(state) * choices
        while product & lower < least:
            product = half_word(state) * choices
        out[i] = low + np.int64(product >> np.uint64(32))
