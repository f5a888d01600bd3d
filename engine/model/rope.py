"""Rotary position embedding (Su et al. 2021, arXiv 2104.09864), halves rotated as transformers' Llama does it."""

from __future__ import annotations

import math

import torch

from engine.model.config import ModelConfig, RopeScaling

Rotation = tuple[torch.Tensor, torch.Tensor]
"""(cos, sin) of a step's positions, each [T, 1, head_dim / 2]."""


def inverse_frequencies(config: ModelConfig) -> torch.Tensor:
    """float32[head_dim / 2]: radians a position, by pair of channels."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    frequencies = 1.0 / config.rope_theta**exponents
    return frequencies if config.rope_scaling is None else _llama3(frequencies, config.rope_scaling)


def _llama3(frequencies: torch.Tensor, scaling: RopeScaling) -> torch.Tensor:
    """Waves longer than the original context are slowed by the factor, short ones kept, those between blended."""
    waves = 2 * math.pi / frequencies
    longest = scaling.original_max_position_embeddings / scaling.low_freq_factor
    shortest = scaling.original_max_position_embeddings / scaling.high_freq_factor
    kept = scaling.original_max_position_embeddings / waves - scaling.low_freq_factor
    kept = kept / (scaling.high_freq_factor - scaling.low_freq_factor)
    blended = (1 - kept) * frequencies / scaling.factor + kept * frequencies
    slowed = torch.where(waves > longest, frequencies / scaling.factor, frequencies)
    return torch.where((waves <= longest) & (waves >= shortest), blended, slowed)


def rotation(positions: torch.Tensor, frequencies: torch.Tensor, dtype: torch.dtype) -> Rotation:
    """positions: int64[T]. The angles are float32, whatever dtype is."""
    angles = torch.outer(positions.float(), frequencies)[:, None]
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    """x: [T, heads, head_dim], turned by its positions."""
    cos, sin = rotation
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
