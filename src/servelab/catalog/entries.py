"""What the catalog holds: frozen dataclasses, each with the source of its values."""

from dataclasses import dataclass, field

from servelab.units import GB


@dataclass(frozen=True)
class Model:
    """A decoder's shape, as far as serving it depends on it."""

    name: str
    num_layers: int
    hidden_size: int
    num_heads: int  # query heads
    num_kv_heads: int  # each serves num_heads // num_kv_heads query heads
    head_dim: int
    intermediate_size: int  # of the SwiGLU FFN, or of one expert
    vocab_size: int
    max_context: int  # tokens, max_position_embeddings
    source: str
    tied_embeddings: bool = False  # the output head is the input embedding
    qk_norm: bool = False
    num_experts: int = 1
    experts_per_token: int = 1
    latent_kv: bool = False  # MLA: head_dim values a token and layer stand for all of K and V

    @property
    def kv_values_per_token(self) -> int:
        """Numbers that one token leaves in the KV cache, all layers together."""
        copies = 1 if self.latent_kv else 2  # K and V
        return copies * self.num_layers * self.num_kv_heads * self.head_dim

    @property
    def ffn_parameters_per_layer(self) -> int:
        """Matrix weights of one layer's FFN, all experts: gate, up and down projection."""
        return self.num_experts * 3 * self.hidden_size * self.intermediate_size

    @property
    def matrix_parameters_per_layer(self) -> int:
        """Matrix weights of one layer: attention projections, FFN (all experts) and the router."""
        return self._attention_parameters + self.ffn_parameters_per_layer + self._router_parameters

    @property
    def active_parameters_per_layer(self) -> int:
        """Matrix weights of one layer that one token meets: with experts, those it is sent to."""
        ffn = self.ffn_parameters_per_layer // self.num_experts * self.experts_per_token
        return self._attention_parameters + ffn + self._router_parameters

    @property
    def embedding_parameters(self) -> int:
        return self.vocab_size * self.hidden_size

    @property
    def num_parameters(self) -> int:
        """All weights, embeddings and norms included."""
        norms = 2 * self.hidden_size + (2 * self.head_dim if self.qk_norm else 0)
        embeddings = self.embedding_parameters * (1 if self.tied_embeddings else 2)
        return self.num_layers * (self.matrix_parameters_per_layer + norms) + self.hidden_size + embeddings

    @property
    def _attention_parameters(self) -> int:
        if self.latent_kv:
            raise ValueError(f"model is {self.name}; it must not have latent attention, of which only KV is modelled")
        heads = 2 * self.num_heads + 2 * self.num_kv_heads  # Q and output, K and V
        return self.hidden_size * self.head_dim * heads

    @property
    def _router_parameters(self) -> int:
        return self.hidden_size * self.num_experts if self.num_experts > 1 else 0


@dataclass(frozen=True)
class Accelerator:
    """A device: what it holds, reads and computes."""

    name: str
    memory_gb: float
    bandwidth_gb_per_s: float
    bf16_tflops: float  # dense, FP32 accumulation
    power_w: float | None  # limit of the board; None where the vendor states none
    host_link: str | None  # name of a link of the catalog; None where host and device share one memory
    source: str

    @property
    def memory_bytes(self) -> int:
        return round(self.memory_gb * GB)

    @property
    def bandwidth(self) -> float:
        """Bytes a second."""
        return self.bandwidth_gb_per_s * GB

    @property
    def flops(self) -> float:
        """Operations a second."""
        return self.bf16_tflops * 1e12


@dataclass(frozen=True)
class Link:
    """A connection, by what it moves in one direction."""

    name: str
    gb_per_s: float
    source: str

    @property
    def bandwidth(self) -> float:
        """Bytes a second in one direction."""
        return self.gb_per_s * GB


@dataclass(frozen=True)
class Record:
    """Something that was measured: never derived, always with where, on what and how."""

    name: str
    what: str
    conditions: str  # hardware, model, software, and what limits its use
    source: str
    rows: list[dict] = field(default_factory=list)

    def where(self, **equal) -> list[dict]:
        """The rows whose columns have the given values; none is an error, since a wrong name would look like it."""
        rows = [row for row in self.rows if all(row.get(key) == value for key, value in equal.items())]
        if not rows:
            raise ValueError(f"{self.name} has no row with {equal}; its columns are {', '.join(self.rows[0])}")
        return rows

    def row(self, **equal) -> dict:
        """The one row whose columns have the given values."""
        rows = self.where(**equal)
        if len(rows) > 1:
            raise ValueError(f"{self.name} has {len(rows)} rows with {equal}; name more columns")
        return rows[0]
