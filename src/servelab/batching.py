"""What a batch saves: bytes read per output token, where KV reads overtake weights, and LoRA adapters (section 8.2.1).

One decode step reads each weight matrix once for the whole batch, and each request's own KV. Sizes are `int` bytes.
"""

from collections import Counter
from collections.abc import Hashable, Iterable

from servelab import memory
from servelab.catalog import Model
from servelab.checks import require_int, require_number

BF16_BYTES = 2


def weight_bytes(model: Model) -> int:
    """Bytes of all weights in BF16."""
    return model.num_parameters * BF16_BYTES


def weight_read_bytes(model: Model, rows: int = 1) -> int:
    """Bytes of weights that one step over `rows` tokens reads, in BF16: all but the input embedding, a look-up.

    With experts, `rows` tokens sent to different experts read at most `rows * experts_per_token` of them.
    """
    require_int("rows", rows, minimum=1)
    lookups = 0 if model.tied_embeddings else model.embedding_parameters
    read = model.num_parameters - lookups
    if model.num_experts > 1:
        untouched = max(0, model.num_experts - rows * model.experts_per_token)
        read -= model.num_layers * untouched * (model.ffn_parameters_per_layer // model.num_experts)
    return read * BF16_BYTES


def step_read_bytes(
    model: Model, batch: int, context: int, kv_dtype: str = "bf16", weights_in_rom: bool = False
) -> int:
    """Bytes that one decode step reads from HBM: the weights once, and `context` tokens of KV for each request.

    `weights_in_rom`: a separate store of sufficient speed feeds the weights, so that only KV is read from HBM.
    """
    require_int("batch", batch, minimum=1)
    require_int("context", context)
    weights = 0 if weights_in_rom else weight_read_bytes(model, rows=batch)
    return weights + batch * context * memory.kv_bytes_per_token(model, kv_dtype)


def read_bytes_per_token(model: Model, batch: int, context: int, kv_dtype="bf16", weights_in_rom=False) -> float:
    """Bytes read from HBM for each output token: D_w / batch + context * k (figures 8-3 and 8-4)."""
    return step_read_bytes(model, batch, context, kv_dtype, weights_in_rom) / batch


def crossover_batch(model: Model, context: int, kv_dtype: str = "bf16") -> int:
    """The smallest batch whose KV reads reach or pass the weight read of a step.

    For models with experts: of a step that reads all of them.
    """
    require_int("context", context, minimum=1)
    all_weights = weight_read_bytes(model, rows=model.num_experts)
    return -(-all_weights // (context * memory.kv_bytes_per_token(model, kv_dtype)))


def weight_intensity(batch: int, weight_element_bytes: float = BF16_BYTES) -> float:
    """Operations per byte of weights read: 2 * batch / element size (a multiply and an add for each row)."""
    require_int("batch", batch, minimum=1)
    require_number("weight_element_bytes", weight_element_bytes, above=True)
    return 2 * batch / weight_element_bytes


def lora_bytes(model: Model, rank: int) -> int:
    """Bytes of one BF16 LoRA adapter on the Q and V projections of all layers: two matrices of `rank` each."""
    require_int("rank", rank, minimum=1)
    q_out, v_out = model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
    values = rank * (model.hidden_size + q_out) + rank * (model.hidden_size + v_out)
    return model.num_layers * values * BF16_BYTES


def rows_per_adapter(adapters: Iterable[Hashable]) -> dict:
    """Rows of each adapter in a batch, given the adapter of each request: the groups that low-rank matrices serve."""
    return dict(Counter(adapters))


def grouped_blocks(rows_by_adapter: dict, rows_per_block: int) -> int:
    """Blocks of a grouped kernel that takes `rows_per_block` rows of one adapter at a time: 20 rows of one adapter
    need 2 blocks of 16, the same 20 split 17, 1, 1, 1 need 5."""
    require_int("rows_per_block", rows_per_block, minimum=1)
    return sum(memory.num_blocks(rows, rows_per_block) for rows in rows_by_adapter.values())
