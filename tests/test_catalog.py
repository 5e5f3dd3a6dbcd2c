"""The catalog: what it computes from an architecture agrees with published totals, and it refuses clearly."""

import re

import pytest

from servelab import catalog
from servelab.catalog import Accelerator, Model


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # Totals that the publishers state, to the last weight.
        ("qwen3-8b", 8_190_735_360),
        ("qwen3-0.6b", 596_049_920),
        ("qwen3-32b", 32_762_123_264),
        ("qwen3-235b-a22b", 235_093_634_560),
        ("llama-3.1-8b", 8_030_261_248),
        ("llama-3.1-70b", 70_553_706_496),
        ("smollm2-135m", 134_515_008),
        ("retrieval", 538_496),  # its card
    ],
)
def test_parameters(name, parameters):
    assert catalog.model(name).num_parameters == parameters


def test_active_parameters_of_a_model_with_experts():
    model = catalog.model("qwen3-235b-a22b")
    active = model.num_layers * model.active_parameters_per_layer + 2 * model.embedding_parameters
    assert active == pytest.approx(22e9, rel=0.02)  # "A22B"


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("qwen3-8b", 2 * 36 * 8 * 128),  # GQA: eight KV heads for 32 query heads
        ("smollm2-135m", 2 * 30 * 3 * 64),
        ("deepseek-v3", 61 * 576),  # MLA: one latent vector of 512 and 64 rotary values
    ],
)
def test_kv_values(name, values):
    assert catalog.model(name).kv_values_per_token == values


def test_every_entry_loads_with_a_source():
    for kind, get in (("models", catalog.model), ("accelerators", catalog.accelerator), ("links", catalog.link)):
        for name in catalog.names(kind):
            assert get(name).source, name
    for name in catalog.names("records"):
        record = catalog.record(name)
        assert record.source, name
        assert record.conditions, name
        assert record.rows, name


def test_links_of_accelerators_exist():
    links = [catalog.accelerator(name).host_link for name in catalog.names("accelerators")]
    assert all(link is None or catalog.link(link).bandwidth > 0 for link in links)


def test_a_record_answers_by_column():
    sweep = catalog.record("batch-sweep")
    assert sweep.row(condition="2k_no_prefix", batch=16)["decode_step_ms"] == 27.44
    assert len(sweep.where(condition="8k_6k_cached")) == 4
    with pytest.raises(ValueError, match=re.escape("batch-sweep has no row with {'batch': 3}")):
        sweep.row(batch=3)
    with pytest.raises(ValueError, match=re.escape("has 2 rows with {'batch': 4}; name more columns")):
        sweep.row(batch=4)


def test_a_file_of_your_own(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "my-card: {name: Mine, memory_gb: 10, bandwidth_gb_per_s: 100, bf16_tflops: 5,"
        " power_w: 90, host_link: null, source: a label}\nbroken: {name: Mine}\n"
    )
    card = catalog.accelerator("my-card", file=file)
    assert (card.bandwidth, card.flops, card.memory_bytes) == (100e9, 5e12, 10**10)
    with pytest.raises(ValueError, match=r"entry 'broken' of .*mine\.yaml is not a Accelerator"):
        catalog.accelerator("broken", file=file)


def test_objects_of_your_own_do_too():
    from servelab import cost

    card = Accelerator("Mine", 10, 100, 5, None, None, "a label")
    model = Model("Mine", 2, 64, 4, 2, 16, 128, 1000, 4096, "a label")
    assert cost.roofline(model, card, [(1, 100)]).bound == "read"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: catalog.model("qwen3-8B"), "name is 'qwen3-8B'.*did you mean qwen3-8b"),
        (lambda: catalog.accelerator("h100"), "did you mean h200, a100-80gb, h100-sxm|h100-sxm"),
        (lambda: catalog.link("pcie"), "name is 'pcie'"),
        (lambda: catalog.record("batch"), "did you mean batch-sweep"),
        (lambda: catalog.names("model"), "kind is 'model'.*models"),
        (lambda: catalog.step_cost("h100-sxm", "qwen3-8b"), "measured pair: .*rtx-pro-6000"),
        (
            lambda: catalog.model("deepseek-v3").num_parameters,
            "model is DeepSeek-V3; it must not have latent attention",
        ),
    ],
)
def test_unknown_names_list_near_matches(call, message):
    with pytest.raises(ValueError, match=re.compile(message)):
        call()
