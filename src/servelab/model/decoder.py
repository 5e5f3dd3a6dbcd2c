"""A decoder of the Qwen3 architecture: RMSNorm, RoPE, grouped-query attention with QK norm, SwiGLU.

How attention reaches the keys and values of earlier tokens is the caller's business: the forward pass takes a function

    attend(layer, query, key, value) -> output

    query, output  (..., num_attention_heads, head_dim)
    key, value     (..., num_key_value_heads, head_dim), of the new tokens only, already normalised and rotated

where `...` is the shape of the token ids. So one forward pass serves training on whole sequences (batch, seq), decoding
with a simple cache, and an engine that hands in the tokens of many requests in one row (num_tokens,) and keeps K and V
in pages. Parameters have the names of transformers' Qwen3ForCausalLM. Written after its definition of the model and
Qwen3, Yang et al. 2025, arXiv:2505.09388; RoPE: Su et al. 2021, arXiv:2104.09864.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from servelab.model.config import DecoderConfig

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]


def causal_attention(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention of whole sequences to themselves: each token sees itself and those before it.

    `query`: (batch, seq, num_attention_heads, head_dim) or without batch. Fewer queries than keys are the last ones.
    """
    num_queries, num_keys = query.shape[-3], key.shape[-3]
    mask = None
    if 1 < num_queries < num_keys:  # PyTorch's is_causal would align the first query with the first key
        mask = torch.ones(num_queries, num_keys, dtype=torch.bool, device=query.device)
        mask = mask.tril(num_keys - num_queries)  # (queries, keys)
    output = functional.scaled_dot_product_attention(
        query.transpose(-3, -2),  # (..., heads, queries, head_dim)
        key.transpose(-3, -2),  # (..., kv heads, keys, head_dim)
        value.transpose(-3, -2),
        attn_mask=mask,
        is_causal=1 < num_queries == num_keys,
        enable_gqa=True,
    )
    return output.transpose(-3, -2)  # (..., queries, heads, head_dim)


class RMSNorm(nn.Module):
    """Divide by the root of the mean square, in float32, and scale."""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, hidden: Tensor) -> Tensor:
        wide = hidden.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(hidden.dtype)


def rotary_tables(positions: Tensor, head_dim: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines by which tokens at `positions` are rotated, each (*positions.shape, 1, head_dim).

    The angles are computed in float32 whatever the model's `dtype`: in bf16, positions above 256 would be rounded.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device=positions.device) / head_dim
    angles = positions[..., None].float() * (1.0 / theta**exponents)  # (..., head_dim / 2)
    angles = torch.cat((angles, angles), dim=-1)[..., None, :]  # (..., 1, head_dim): the same for all heads
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotate element i of each head with element i + head_dim / 2. `heads`: (..., num_heads, head_dim)."""
    first, second = heads.chunk(2, dim=-1)
    return heads * cosines + torch.cat((-second, first), dim=-1) * sines


class Attention(nn.Module):
    def __init__(self, config: DecoderConfig, layer: int):
        super().__init__()
        self.layer = layer
        self.head_dim = config.head_dim
        query_size = config.num_attention_heads * config.head_dim
        key_size = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, query_size, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, key_size, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, key_size, bias=False)
        self.o_proj = nn.Linear(query_size, config.hidden_size, bias=False)
        self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps) if config.qk_norm else nn.Identity()
        self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps) if config.qk_norm else nn.Identity()

    def forward(self, hidden: Tensor, rotary: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        query = self.q_proj(hidden).unflatten(-1, (-1, self.head_dim))  # (..., heads, head_dim)
        key = self.k_proj(hidden).unflatten(-1, (-1, self.head_dim))  # (..., kv heads, head_dim)
        value = self.v_proj(hidden).unflatten(-1, (-1, self.head_dim))  # (..., kv heads, head_dim)
        query = rotate(self.q_norm(query), *rotary)
        key = rotate(self.k_norm(key), *rotary)
        output = attend(self.layer, query, key, value)  # (..., heads, head_dim)
        return self.o_proj(output.flatten(-2))  # (..., hidden_size)


class MLP(nn.Module):
    def __init__(self, config: DecoderConfig):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(hidden)) * self.up_proj(hidden))


class DecoderLayer(nn.Module):
    def __init__(self, config: DecoderConfig, layer: int):
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config, layer)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config)

    def forward(self, hidden: Tensor, rotary: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), rotary, attend)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class Trunk(nn.Module):
    """Everything before the output matrix; a class of its own because checkpoints name it `model`."""

    def __init__(self, config: DecoderConfig):
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config, layer) for layer in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class Decoder(nn.Module):
    """Token ids in, logits out. `hidden` and `logits` are its two halves, for who needs the logits of few tokens."""

    def __init__(self, config: DecoderConfig):
        super().__init__()
        self.config = config
        self.model = Trunk(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.tie_weights()

    def tie_weights(self) -> None:
        """Make the output matrix the embedding itself, where the configuration says so."""
        if self.config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    @property
    def device(self) -> torch.device:
        return self.lm_head.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.lm_head.weight.dtype

    def forward(self, token_ids: Tensor, positions: Tensor | None = None, attend: Attend = causal_attention) -> Tensor:
        """Logits of every token: `logits(hidden(...))`. Returns (*token_ids.shape, vocab_size)."""
        return self.logits(self.hidden(token_ids, positions, attend))

    def hidden(self, token_ids: Tensor, positions: Tensor | None = None, attend: Attend = causal_attention) -> Tensor:
        """Run the layers, each of which calls `attend` once, in order.

        - `token_ids`: integers of any shape `...`; (batch, seq) or (seq,) for `causal_attention`.
        - `positions`: of the same shape, or (seq,) for all of a batch; by default 0, 1, ... along the last axis.
        - `attend`: see the head of this file.

        Returns (*token_ids.shape, hidden_size), normalised: what `logits` takes.
        """
        hidden = self.model.embed_tokens(token_ids)  # (..., hidden_size)
        if positions is None:
            positions = torch.arange(token_ids.shape[-1], device=token_ids.device)
        rotary = rotary_tables(positions, self.config.head_dim, self.config.rope_theta, hidden.dtype)
        for layer in self.model.layers:
            hidden = layer(hidden, rotary, attend)
        return self.model.norm(hidden)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits of the next token. `hidden`: (..., hidden_size). Returns (..., vocab_size)."""
        return self.lm_head(hidden)
