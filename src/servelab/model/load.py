"""Weights from files: everything is checked before anything is loaded."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from servelab.model.config import DecoderConfig
from servelab.model.decoder import Decoder

RETRIEVAL_FOLDER = Path(__file__).parent / "weights" / "retrieval"
DRAFT_FOLDER = RETRIEVAL_FOLDER.with_name("retrieval-draft")
DTYPES = ("F64", "F32", "F16", "BF16")  # as safetensors calls what is a plain number


def load_checkpoint(
    folder: str | Path, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> Decoder:
    """A Qwen3 checkpoint: `config.json` and `model.safetensors`, or an index and its shards.

    Raises `ValueError`, naming file and tensor, if a file is missing, damaged or cut short, or a tensor is missing,
    left over, of another shape, no floating-point number, NaN or infinite.
    """
    folder = Path(folder)
    values = read_json(folder / "config.json")
    try:
        config = DecoderConfig.from_dict(values)
    except ValueError as error:
        raise ValueError(f"{folder / 'config.json'}: {error}") from error
    paths = tensor_files(folder)
    expected = parameter_shapes(config)
    check_names(expected, paths, folder)
    tensors = {}
    for path in sorted(set(paths.values())):
        names = [name for name in expected if paths[name] == path]
        tensors |= read_tensors(path, {name: expected[name] for name in names}, dtype, device)
    return build(config, tensors)


def load_retrieval(device: torch.device | str = "cpu") -> Decoder:
    """The model that ships with the library, trained for `servelab.model.retrieval`. In float32."""
    return load_shipped(RETRIEVAL_FOLDER, device)


def load_retrieval_draft(device: torch.device | str = "cpu") -> Decoder:
    """A quarter of its size, trained for shorter documents: it drafts for it (section 8.5.3). In float32."""
    return load_shipped(DRAFT_FOLDER, device)


def load_shipped(folder: Path, device: torch.device | str) -> Decoder:
    """The checkpoint in `folder`, if its weights are the ones that its card states."""
    path = folder / "model.safetensors"
    card = read_json(folder / "card.json")
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != card["sha256"]:
        raise ValueError(f"{path} is not the file that was shipped: its SHA-256 must be {card['sha256']}")
    return load_checkpoint(folder, device=device)


def read_json(path: Path) -> dict:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"{path} does not exist") from error
    except ValueError as error:  # no JSON, no UTF-8
        raise ValueError(f"{path} is damaged: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds a {type(content).__name__}; it must hold an object")
    return content


def parameter_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Names and shapes of what a checkpoint of this model must hold."""
    with torch.device("meta"):
        shapes = {name: tuple(tensor.shape) for name, tensor in Decoder(config).state_dict().items()}
    if config.tie_word_embeddings:
        del shapes["lm_head.weight"]
    return shapes


def tensor_files(folder: Path) -> dict[str, Path]:
    """Which file holds which tensor."""
    index_path = folder / "model.safetensors.index.json"
    if not index_path.exists():
        path = folder / "model.safetensors"
        with open_safetensors(path) as file:
            return dict.fromkeys(file.keys(), path)
    weight_map = read_json(index_path).get("weight_map")
    if not isinstance(weight_map, dict):
        raise ValueError(f"{index_path} has no weight_map")
    for name, file_name in weight_map.items():
        # A shard lies beside its index: a path to elsewhere is no checkpoint of ours.
        if not isinstance(file_name, str) or Path(file_name).name != file_name:
            raise ValueError(f"{index_path}: {name} is in {file_name!r}; it must be the name of a file in the folder")
    return {name: folder / file_name for name, file_name in weight_map.items()}


def check_names(expected: Mapping, found: Mapping, source: Path) -> None:
    """Raise `ValueError` unless the tensors found are those expected, but for copies that a tied model may carry."""
    for name in expected:
        if name not in found:
            raise ValueError(f"{source}: tensor {name} is missing")
    for name in found:
        if name not in expected and name != "lm_head.weight":
            raise ValueError(f"{source}: tensor {name} is none of this model's")


def open_safetensors(path: Path):
    """Raises `ValueError` if the file is missing or its header or length is wrong."""
    if not path.is_file():
        raise ValueError(f"{path} does not exist")
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is damaged or cut short: {error}") from error


def read_tensors(path: Path, expected: Mapping[str, tuple[int, ...]], dtype, device) -> dict[str, Tensor]:
    """The tensors named in `expected`, checked and converted."""
    tensors = {}
    with open_safetensors(path) as file:
        present = set(file.keys())
        for name, shape in expected.items():  # headers only: nothing is read before all of them are right
            if name not in present:
                raise ValueError(f"{path}: tensor {name} is missing")
            header = file.get_slice(name)
            check_shape(path, name, tuple(header.get_shape()), shape)
            if header.get_dtype() not in DTYPES:
                raise ValueError(f"{path}: tensor {name} is {header.get_dtype()}; it must be one of {DTYPES}")
        for name in expected:
            tensors[name] = checked(path, name, file.get_tensor(name)).to(device=device, dtype=dtype)
    return tensors


def check_shape(path: Path, name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if shape != expected:
        raise ValueError(f"{path}: tensor {name} has shape {shape}; it must be {expected}")


def checked(path: Path, name: str, tensor: Tensor) -> Tensor:
    """The tensor; raises `ValueError` if it has values that no weight has."""
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"{path}: tensor {name} is damaged: it has NaN or infinite values")
    return tensor


def build(config: DecoderConfig, tensors: Mapping[str, Tensor]) -> Decoder:
    """A model that uses `tensors` themselves, no copies: a large one is never in memory twice."""
    with torch.device("meta"):
        model = Decoder(config)
    state = dict(tensors)
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, assign=True)
    model.tie_weights()  # assigning made two parameters of one
    return model.requires_grad_(False).eval()
