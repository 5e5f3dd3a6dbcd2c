"""Checkpoints in folders: what transformers saves loads; whatever is wrong with a file is named and nothing loads."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from servelab.model.config import DecoderConfig
from servelab.model.decoder import Decoder
from servelab.model.load import load_checkpoint

TINY = DecoderConfig(61, 32, 48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16)
NAME = "model.layers.1.self_attn.k_proj.weight"


@pytest.fixture
def folder(tmp_path):
    """A sound checkpoint in one file."""
    torch.manual_seed(0)
    save(tmp_path, Decoder(TINY).state_dict())
    return tmp_path


def save(folder, tensors, name="model.safetensors"):
    save_file(tensors, folder / name)
    (folder / "config.json").write_text(json.dumps(TINY.to_dict()), encoding="utf-8")


def change(folder, name, value):
    """Put `value` in place of a tensor; `None` removes it."""
    tensors = load_file(folder / "model.safetensors")
    tensors[name] = value
    save(folder, {key: tensor for key, tensor in tensors.items() if tensor is not None})


def shard(folder):
    """Split the file as large checkpoints are; returns the path of the index."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    weight_map = {}
    for part, chosen in enumerate((names[::2], names[1::2]), start=1):
        file_name = f"model-0000{part}-of-00002.safetensors"
        save(folder, {name: tensors[name] for name in chosen}, file_name)
        weight_map |= dict.fromkeys(chosen, file_name)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}), encoding="utf-8")
    return index


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("shard_size", ["1GB", "20KB"])
@torch.inference_mode()
def test_what_transformers_saves(tmp_path, tied, shard_size):
    transformers = pytest.importorskip("transformers", reason="transformers, the oracle, is not installed")
    values = {**TINY.to_dict(), "tie_word_embeddings": tied}
    theirs = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**values)).eval()
    theirs.save_pretrained(tmp_path, max_shard_size=shard_size)
    assert (tmp_path / "model.safetensors").exists() == (shard_size == "1GB")
    ours = load_checkpoint(tmp_path)
    token_ids = torch.arange(30)[None]
    torch.testing.assert_close(ours(token_ids), theirs(token_ids).logits, rtol=1e-5, atol=1e-5)
    assert (ours.lm_head.weight is ours.model.embed_tokens.weight) == tied
    half = load_checkpoint(tmp_path, dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in half.parameters()} == {torch.bfloat16}


def test_shards_hold_the_same(folder):
    whole = load_checkpoint(folder).state_dict()
    shard(folder)
    parts = load_checkpoint(folder).state_dict()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_a_loaded_model_needs_no_gradients(folder):
    model = load_checkpoint(folder)
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (NAME, None, f"tensor {NAME} is missing"),
        (NAME, torch.zeros(32, 31), rf"tensor {NAME} has shape \(32, 31\); it must be \(32, 32\)"),
        (NAME, torch.zeros(32, 32, dtype=torch.int8), f"tensor {NAME} is I8; it must be one of"),
        (NAME, torch.full((32, 32), float("nan")), f"tensor {NAME} is damaged: it has NaN or infinite values"),
        ("lm_head.weight", None, "tensor lm_head.weight is missing"),
        ("model.layers.2.mlp.up_proj.weight", torch.zeros(2), "tensor model.layers.2.mlp.up_proj.weight is none of"),
    ],
)
def test_a_wrong_tensor(folder, name, value, message):
    change(folder, name, value)
    with pytest.raises(ValueError, match=message) as caught:
        load_checkpoint(folder)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("kept", [0, 5, 300, -1])
def test_a_file_that_was_cut_short(folder, kept):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match="is damaged or cut short") as caught:
        load_checkpoint(folder)
    assert str(path) in str(caught.value)


def test_a_damaged_header(folder):
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[20] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
        load_checkpoint(folder)


def test_missing_files(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"model\.safetensors does not exist"):
        load_checkpoint(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ValueError, match=r"config\.json does not exist"):
        load_checkpoint(folder)
    with pytest.raises(ValueError, match="does not exist"):
        load_checkpoint(folder / "none")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"model_type": "qwen3"', r"config\.json is damaged"),
        (b"\xff\xfe", r"config\.json is damaged"),
        (b"[]", r"config\.json holds a list"),
        (b'{"model_type": "gpt2"}', r"config\.json: model_type is 'gpt2'; it must be 'qwen3'"),
    ],
)
def test_a_wrong_configuration(folder, content, message):
    (folder / "config.json").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_checkpoint(folder)


def test_a_missing_shard(folder):
    index = shard(folder)
    missing = next(iter(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())))
    (folder / missing).unlink()
    with pytest.raises(ValueError, match=f"{missing} does not exist"):
        load_checkpoint(folder)


def test_a_shard_without_its_tensor(folder):
    shard(folder)
    shutil.copy(folder / "model-00001-of-00002.safetensors", folder / "model-00002-of-00002.safetensors")
    with pytest.raises(ValueError, match=r"model-00002-of-00002\.safetensors: tensor .* is missing"):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda index: index.pop("weight_map"), "has no weight_map"),
        (lambda index: index["weight_map"].pop(NAME), f"tensor {NAME} is missing"),
        (lambda index: index["weight_map"].update({NAME: "../other.safetensors"}), "must be the name of a file in"),
        (lambda index: index["weight_map"].update({NAME: 3}), "is in 3; it must be the name of a file"),
    ],
)
def test_a_wrong_index(folder, change, message):
    index = shard(folder)
    content = json.loads(index.read_text(encoding="utf-8"))
    change(content)
    index.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        load_checkpoint(folder)
