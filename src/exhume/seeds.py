"""Independent random streams from one number.

A user gives one seed. The data, the random features V, their bias and the attack's start each take a stream of their
own, derived by a hash, so that knowing one of them (an attacker knows V's) says nothing about the others.
"""

import hashlib
from typing import Literal

import torch

Purpose = Literal["data", "features", "bias", "network", "start", "chance", "noise", "other-noise", "held-out"]


def derive(seed: int, purpose: Purpose) -> int:
    """A 63-bit seed for one purpose.

    >>> derive(0, "data") == derive(0, "data"), derive(0, "data") == derive(0, "features")
    (True, False)
    """
    digest = hashlib.blake2b(f"exhume:{purpose}:{seed}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def generator(seed: int, purpose: Purpose, device: torch.device | str = "cpu") -> torch.Generator:
    return torch.Generator(device=device).manual_seed(derive(seed, purpose))


def start_of(seed: int, stream: int = 0) -> torch.Generator:
    """Random numbers for the start of an attack; further streams (restarts) are independent of the first."""
    return generator(derive(seed, "start") + stream, "start")
