"""A Llama-style decoder: RMSNorm, rotary embedding, grouped-query attention, SwiGLU.

Source: Touvron et al. 2023, arXiv 2302.13971; the names of the weights are transformers'.

What a token's logits depend on. In exact arithmetic on the tokens before it alone; in floating point on what decides
the order of sums, too:

* who shares the step: nothing, to the last bit, where the matrix library sums a row in one order whatever the number
  of rows. MKL with AVX-512 does for matrices of up to 768 inputs (the demo model's), given two rows or more, which is
  why a single row is computed as two. Elsewhere it moves the last bits as the next case does.
* how the tokens were cut into chunks, and so what was cached: attention sums over keys in an order that depends on
  how many rows and keys there are. The demo model's logits then move by less than 1e-5 of their standard deviation,
  the distance of the two highest by 5e-6 in the mean where one in a hundred is below 9e-3: greedy output differs about
  once in 300,000 tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from engine.model.attention import Layout, lay_out
from engine.model.batch import Batch
from engine.model.config import ModelConfig
from engine.model.rope import Rotation, inverse_frequencies, rotate, rotation


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer's. Matrices are [inputs, outputs], so that x @ w is the product.

    qkv: query, key and value side by side; gate_up: the two inputs of SwiGLU side by side.
    """

    input_norm: torch.Tensor
    qkv: torch.Tensor
    output: torch.Tensor
    post_attention_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


@dataclass(frozen=True, slots=True)
class Weights:
    """embedding: [vocab, hidden]; head: [hidden, vocab]. All of one dtype on one device."""

    embedding: torch.Tensor
    layers: tuple[LayerWeights, ...]
    norm: torch.Tensor
    head: torch.Tensor


class Llama:
    """gathered_bytes: KV that was copied because its blocks were scattered, since the model was made."""

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        self.config = config
        self.weights = weights
        self.device = weights.embedding.device
        self.dtype = weights.embedding.dtype
        self.gathered_bytes = 0
        self._frequencies = inverse_frequencies(config).to(self.device)

    @torch.inference_mode()
    def forward(self, batch: Batch, kv: torch.Tensor) -> torch.Tensor:
        """float32[chunks, vocab]: the logits of each chunk's last token.

        kv: [layers, 2 (key, value), blocks, block_size, kv_heads, head_dim] of the weights' dtype and device. The
        batch's own keys and values are written into it, those of earlier positions read from it.
        Raises IndexError for a token id outside the vocabulary or a block table without room.
        """
        layout = lay_out(batch, kv.shape[3], self.device, self.dtype)
        turn = rotation(layout.positions, self._frequencies, self.dtype)
        x = functional.embedding(batch.token_ids.to(self.device), self.weights.embedding)
        for layer, layer_kv in zip(self.weights.layers, kv, strict=True):
            x = x + self._attention(layer, self._norm(x, layer.input_norm), layout, turn, layer_kv)
            x = x + self._feed_forward(layer, self._norm(x, layer.post_attention_norm))
        self.gathered_bytes += layout.gathered * kv[:, :, 0].nbytes
        return _product(self._norm(x[layout.last], self.weights.norm), self.weights.head).float()

    def _attention(
        self, layer: LayerWeights, x: torch.Tensor, layout: Layout, turn: Rotation, kv: torch.Tensor
    ) -> torch.Tensor:
        heads, kv_heads = self.config.num_attention_heads, self.config.num_key_value_heads
        qkv = _product(x, layer.qkv).view(len(x), heads + 2 * kv_heads, -1)
        turned = rotate(qkv[:, : heads + kv_heads], turn)
        key, value = turned[:, heads:], qkv[:, heads + kv_heads :]
        kv.flatten(1, 2).index_copy_(1, layout.slots, torch.stack((key, value)))
        query = turned[:, :heads].view(len(x), kv_heads, heads // kv_heads, -1)
        return _product(torch.cat([window.attend(query, kv) for window in layout.windows]), layer.output)

    def _feed_forward(self, layer: LayerWeights, x: torch.Tensor) -> torch.Tensor:
        gate, up = _product(x, layer.gate_up).chunk(2, dim=-1)
        return _product(functional.silu(gate) * up, layer.down)

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """In float32, whatever the weights are."""
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.config.rms_norm_eps)
        return weight * wide.to(self.dtype)


def _product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """x @ weight. One row is computed as two: libraries have another routine for one, which rounds differently."""
    return (x.expand(2, -1) @ weight)[:1] if len(x) == 1 else x @ weight
