"""The shape of a decoder, and how a checkpoint's `config.json` states it."""

from dataclasses import dataclass

from servelab.checks import require_int, require_number


@dataclass(frozen=True)
class DecoderConfig:
    """A decoder with grouped-query attention. Field names are those of `config.json`, but for `qk_norm`."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float = 1e-6
    rope_theta: float = 1_000_000.0
    max_position_embeddings: int = 32_768
    tie_word_embeddings: bool = False  # the output matrix is the embedding
    qk_norm: bool = True  # queries and keys are normalised: Qwen3 does, Llama does not

    def __post_init__(self):
        for name in (
            *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
            *("num_key_value_heads", "head_dim", "max_position_embeddings"),
        ):
            require_int(name, getattr(self, name), minimum=1)
        require_number("rms_norm_eps", self.rms_norm_eps, above=True)
        require_number("rope_theta", self.rope_theta, above=True)
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads is {self.num_attention_heads}; it must be a multiple of num_key_value_heads, "
                f"{self.num_key_value_heads}"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}; it must be even, as RoPE rotates pairs")

    @classmethod
    def from_dict(cls, values: dict) -> "DecoderConfig":
        """From the content of a Qwen3 `config.json`, as transformers 4 or 5 writes it.

        Raises `ValueError` on another architecture and on what this decoder does not do, rather than compute
        something else: biases, scaled RoPE, sliding windows, other activations.
        """
        if values.get("model_type") != "qwen3":
            raise ValueError(f"model_type is {values.get('model_type')!r}; it must be 'qwen3'")
        rope = values.get("rope_parameters") or values.get("rope_scaling") or {}
        if not isinstance(rope, dict):
            raise ValueError(f"rope_parameters is {rope!r}; it must be an object")
        rope_type = rope.get("rope_type", rope.get("type", "default"))
        layer_types = values.get("layer_types") or []
        for name, value, allowed in (
            ("attention_bias", bool(values.get("attention_bias")), False),
            ("hidden_act", values.get("hidden_act", "silu"), "silu"),
            ("use_sliding_window", bool(values.get("use_sliding_window")), False),
            ("layer_types", layer_types, ["full_attention"] * len(layer_types)),
            ("rope_type", rope_type, "default"),
            ("quantization_config", values.get("quantization_config"), None),
        ):
            if value != allowed:
                raise ValueError(f"{name} is {value!r}; this decoder can only do {allowed!r}")
        known = {name: values[name] for name in cls.__dataclass_fields__ if name in values}
        if "rope_theta" in rope:
            known["rope_theta"] = rope["rope_theta"]
        known.pop("qk_norm", None)
        missing = [name for name in REQUIRED if name not in known]
        if missing:
            raise ValueError(f"{missing[0]} is missing; a Qwen3 configuration must state it")
        return cls(**known)

    def to_dict(self) -> dict:
        """What `config.json` must hold for this to load, here and in transformers."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "qk_norm"}
        return {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "dtype": "float32", **values}


REQUIRED = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "head_dim", "rms_norm_eps", "rope_theta"),
)
