"""Four-bit codes in bytes: two a byte, the first in the low nibble, along the last dimension."""

from __future__ import annotations

import torch


def pack_nibbles(codes: torch.Tensor) -> torch.Tensor:
    """Codes 0…15 (uint8, [..., K]) → bytes (uint8, [..., K / 2]). Raises ValueError for an odd K."""
    if codes.shape[-1] % 2:
        raise ValueError(f"{codes.shape[-1]} codes do not fill whole bytes")
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def unpack_nibbles(packed: torch.Tensor) -> torch.Tensor:
    """Bytes (uint8, [..., K / 2]) → codes 0…15 (uint8, [..., K])."""
    return torch.stack((packed & 0xF, packed >> 4), dim=-1).flatten(-2)
