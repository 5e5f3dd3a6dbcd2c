"""Prefix reuse with a global history and sliding windows, as in DeepSeek V4.1 (sections 8.3.3 and 8.4.2, figure 8-21).

The encoder's layers write a global KV history, kept for long, and a sliding-window (SWA) state of the last tokens, kept
in host memory for a short time. The decoder's own window state serves one generation and is never kept. So a later
turn finds both, only the history, or nothing; and always rebuilds the decoder's window.
"""

from dataclasses import dataclass

from servelab import catalog
from servelab.checks import require_int, require_name, require_number

RECOVERY_PATHS = ("global_and_window", "global_only", "none")


@dataclass(frozen=True)
class WindowedModel:
    """An encoder and a decoder whose layers see the last `window` tokens, besides the global history."""

    encoder_layers: int
    decoder_layers: int
    window: int  # tokens, of encoder and decoder alike

    def __post_init__(self):
        require_int("encoder_layers", self.encoder_layers, minimum=1)
        require_int("decoder_layers", self.decoder_layers, minimum=1)
        require_int("window", self.window, minimum=1)


DEEPSEEK_V41 = WindowedModel(encoder_layers=20, decoder_layers=20, window=128)  # technical report, after the chapter


@dataclass(frozen=True)
class Recovery:
    """What one prefill computes until its first decode step can start."""

    replayed_tokens: int  # through the encoder again, only to rebuild its window: their global history is there
    new_history_tokens: int  # through the encoder for the first time, or again because their history was lost
    decoder_tokens: int  # encoder outputs that the decoder replays to build its window: the last ones of the prompt
    kept_outputs: int  # of those, not computed in this prefill: their encoder outputs must still be at hand
    is_encoder_exact: bool  # False: the encoder's window was rebuilt from a start that cuts off older influence
    encoder_token_layers: int  # tokens times layers that they pass
    decoder_token_layers: int

    @property
    def encoder_tokens(self) -> int:
        return self.replayed_tokens + self.new_history_tokens

    @property
    def token_layers(self) -> int:
        """Tokens times layers, encoder and decoder together."""
        return self.encoder_token_layers + self.decoder_token_layers


def recover(path: str, prefix_tokens: int, appended_tokens: int, model: WindowedModel = DEEPSEEK_V41) -> Recovery:
    """Prefill `appended_tokens` behind a prefix of which `path` says what is still cached (one of `RECOVERY_PATHS`).

    "global_and_window": the encoder takes only what was appended. "global_only": it first replays the last tokens of
    the prefix, at most a window. "none": all of the prefix is computed again. A layer's window holds what the layer
    below made of tokens outside the window, so a replay of one window is approximate, unless it begins at the start
    of the text. The decoder's replay is common to all paths. Source: figure 8-21, after the V4.1 report, section 3.2.2.
    """
    require_name("path", path, RECOVERY_PATHS)
    require_int("prefix_tokens", prefix_tokens)
    require_int("appended_tokens", appended_tokens, minimum=1)
    replayed = min(model.window, prefix_tokens) if path == "global_only" else 0
    new_history = appended_tokens + (prefix_tokens if path == "none" else 0)
    decoder = min(model.window, prefix_tokens + appended_tokens)
    return Recovery(
        replayed_tokens=replayed,
        new_history_tokens=new_history,
        decoder_tokens=decoder,
        kept_outputs=max(0, decoder - replayed - new_history),
        is_encoder_exact=path != "global_only" or replayed == prefix_tokens,
        encoder_token_layers=(replayed + new_history) * model.encoder_layers,
        decoder_token_layers=decoder * model.decoder_layers,
    )


def long_term_storage_ratio(window_share: float, global_ratio: float) -> float:
    """Long-term cache against before, once windows leave it and the global history shrinks to `global_ratio` of itself.

    `window_share`: the windows' part of the old cache. For V4 to V4.1 the chapter has a half and a quarter: 1/8.
    """
    require_number("window_share", window_share, maximum=1)
    require_number("global_ratio", global_ratio)
    return (1 - window_share) * global_ratio


def windowed_state_bytes(model: str, context_tokens: int) -> tuple[int, int]:
    """Bytes of (global history, sliding windows) that a context leaves in "v4" or "v4_1" while it is generated from.

    History grows by the same for each token, windows are full and stay as they are: contexts of less than a window
    are refused. From record "deepseek-state", which has two lengths of each model.
    """
    record = catalog.record("deepseek-state")
    require_name("model", model, sorted({row["model"] for row in record.rows}))
    require_int("context_tokens", context_tokens, minimum=DEEPSEEK_V41.window)
    row = record.where(model=model)[0]
    history = context_tokens * row["global_history_bytes"] / row["context_tokens"]
    return round(history), row["sliding_window_bytes"]
