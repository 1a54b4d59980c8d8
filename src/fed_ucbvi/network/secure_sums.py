"""Secure sums: nodes add masks to their numbers that cancel in the sum, so that only the sum can be read.

Every two nodes i < j of a roster share a key ``k_ij``. To answer the roster node i adds the mask that ``k_ij`` gives,
and node j subtracts it, modulo ``2^64``, word by word. What one node sends looks random to whoever lacks the keys; in
the sum over all nodes every mask appears once with each sign.

- ``k_ij = HKDF-SHA256(X25519(i, j); salt = run; info = version, digest of the roster, both names)``
- ``mask = ChaCha20 keystream under BLAKE2b(k_ij; digest of the roster)``, as little-endian 64-bit words.

The roster says the round, who takes part, with which one-time keys, how many new episodes and which broadcast; all of
it is in the digest. So no mask ever hides two different answers. Nothing here reads or writes anything.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fed_ucbvi.algorithms.base import Message
from fed_ucbvi.core.errors import InputError

VERSION = b"fed-ucbvi secure sums 3"
KEY_BYTES = 32

Words = npt.NDArray[np.uint64]


def framed(*parts: bytes) -> bytes:
    """Byte strings one after the other, each with its length before it, so that no two lists give the same bytes."""
    return b"".join([piece for part in parts for piece in (len(part).to_bytes(8, "little"), part)])


def pair_key(own: X25519PrivateKey, other: bytes, run: str, roster: bytes, names: Iterable[str]) -> bytes:
    """``k_ij``, the same for both of the two nodes ``names``, and known to nobody else."""
    try:
        shared = own.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError as error:
        raise InputError("a node's key for secure sums is not one.") from error
    info = framed(VERSION, roster, *(name.encode() for name in sorted(names)))
    return HKDF(hashes.SHA256(), KEY_BYTES, salt=run.encode(), info=info).derive(shared)


def mask(pair: bytes, roster: bytes, words: int) -> Words:
    """The words that two nodes with this key add and subtract when they answer the roster with this digest."""
    key = hashlib.blake2b(roster, key=pair, digest_size=KEY_BYTES).digest()
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(8 * words)), dtype="<u8").astype(np.uint64, copy=False)


def masked(report: Message, name: str, pairs: Mapping[str, bytes], roster: bytes) -> Message:
    """The report of node ``name``, of 64-bit integers, with the masks it shares with every other node."""
    flat = np.concatenate([np.ascontiguousarray(array).reshape(-1).view(np.uint64) for array in report])
    for other, pair in pairs.items():
        (np.add if other > name else np.subtract)(flat, mask(pair, roster, flat.size), out=flat)
    ends = itertools.accumulate(array.size for array in report)
    numbers = flat.view(np.int64)
    return tuple(
        numbers[end - array.size : end].reshape(array.shape) for array, end in zip(report, ends, strict=True)
    )


def summed(reports: Iterable[Message]) -> Message:
    """The sum of reports modulo ``2^64``, in which the masks of all nodes of a roster cancel."""
    return tuple(
        np.asarray(sum(array.view(np.uint64) for array in arrays)).view(np.int64)
        for arrays in zip(*reports, strict=True)
    )
