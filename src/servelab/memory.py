"""How much memory the KV cache takes, and how many requests fit (sections 8.1.2 and 8.3.1).

Sizes are `int` bytes, lengths are tokens. A request's KV is stored in blocks of `block_size` tokens; the K and
V of a token lie under the same block number in all layers, so one block table serves a model with one kind of
attention. Hybrid models have a table for each kind.
"""

from servelab.catalog import Model
from servelab.checks import require_int, require_name
from servelab.quantization.formats import FORMATS

# K-quants group 256 values, more than a head has.
KV_DTYPES = ("f32", "bf16", "f16", "fp8", "q8_0", "q4_0")


def kv_bytes_per_token(model: Model, kv_dtype: str = "bf16") -> int:
    """Bytes of K and V that one token leaves behind in all layers (section 8.1.2).

    Only KV heads count: grouped-query attention (GQA) stores `num_kv_heads` of them, not `num_heads`; with one KV
    head that is MQA, with as many as query heads MHA. Latent attention (MLA) stores one vector for K and V.
    """
    require_name("kv_dtype", kv_dtype, KV_DTYPES)
    block = FORMATS[kv_dtype]
    if model.head_dim % block.values:
        raise ValueError(f"head_dim is {model.head_dim}; {kv_dtype} needs a multiple of {block.values}")
    return model.kv_values_per_token // block.values * block.block_bytes


def written_tokens(input_tokens: int, output_tokens: int) -> int:
    """Tokens whose KV a finished request has written: the last output token is never fed back."""
    require_int("input_tokens", input_tokens, minimum=1)
    require_int("output_tokens", output_tokens, minimum=1)
    return input_tokens + output_tokens - 1


def num_blocks(tokens: int, block_size: int) -> int:
    """Blocks that `tokens` tokens need: ceil(tokens / block_size)."""
    require_int("tokens", tokens)
    require_int("block_size", block_size, minimum=1)
    return -(-tokens // block_size)


def unused_slots(tokens: int, block_size: int) -> int:
    """Slots of the last block that hold no token yet: 0 to block_size - 1."""
    return num_blocks(tokens, block_size) * block_size - tokens


def shared_blocks(input_tokens: int, shared_prefix: int, block_size: int) -> int:
    """Whole blocks of a prefix that requests can share.

    A partly filled block stays private, and so does the block of the last input token: its logits are
    needed, so the token is computed again even when all of the input is shared.
    """
    require_int("input_tokens", input_tokens, minimum=1)
    require_int("shared_prefix", shared_prefix, maximum=input_tokens)
    require_int("block_size", block_size, minimum=1)
    return min(shared_prefix, input_tokens - 1) // block_size


def request_kv_bytes(model, input_tokens, output_tokens, block_size=16, kv_dtype="bf16", shared_prefix=0) -> int:
    """Bytes of blocks that one finished request holds for itself, without the prefix it shares."""
    total = num_blocks(written_tokens(input_tokens, output_tokens), block_size)
    private = total - shared_blocks(input_tokens, shared_prefix, block_size)
    return private * block_size * kv_bytes_per_token(model, kv_dtype)


def batch_kv_bytes(
    model,
    requests,
    input_tokens,
    output_tokens,
    block_size=16,
    kv_dtype="bf16",
    shared_prefix=0,
    num_adapters=1,
) -> int:
    """Bytes of blocks that `requests` equal requests hold together; their shared prefix counts once an adapter.

    K and V depend on the adapter, so requests of different LoRA adapters share nothing, however alike their texts.
    """
    require_int("requests", requests)
    require_int("num_adapters", num_adapters, minimum=1)
    private = request_kv_bytes(model, input_tokens, output_tokens, block_size, kv_dtype, shared_prefix)
    prefix = _prefix_bytes(model, input_tokens, block_size, kv_dtype, shared_prefix)
    return requests * private + min(requests, num_adapters) * prefix


def max_requests(
    pool_bytes,
    model,
    input_tokens,
    output_tokens,
    block_size=16,
    kv_dtype="bf16",
    shared_prefix=0,
    num_adapters=1,
) -> int:
    """Most equal requests that finish within `pool_bytes` with no preemption (section 8.1.2).

    `num_adapters`: adapters among them, each with its own copy of the shared prefix; their weights are not KV and
    leave the pool beforehand (`batching.lora_bytes`).
    """
    require_int("pool_bytes", pool_bytes)
    require_int("num_adapters", num_adapters, minimum=1)
    private = request_kv_bytes(model, input_tokens, output_tokens, block_size, kv_dtype, shared_prefix)
    prefix = _prefix_bytes(model, input_tokens, block_size, kv_dtype, shared_prefix)
    few = min(num_adapters, pool_bytes // (private + prefix))  # as long as each request brings an adapter of its own
    if few < num_adapters:
        return few
    return (pool_bytes - num_adapters * prefix) // private


def _prefix_bytes(model, input_tokens, block_size, kv_dtype, shared_prefix) -> int:
    return shared_blocks(input_tokens, shared_prefix, block_size) * block_size * kv_bytes_per_token(model, kv_dtype)
