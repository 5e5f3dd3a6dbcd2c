"""What a coding agent sends, turn after turn, as text: for a replay in a real tokenizer's tokens."""

from collections.abc import Callable
from pathlib import Path

import servelab

SYSTEM = """You are a coding agent. You work on one repository and answer with one call a turn.
read_file(path): the first lines of a file
search(text): where a text occurs
run_tests(): the result of the test suite
Stop with done(summary)."""
TASK = "The pool reports too few free blocks after a cancellation. Find out why and mend it."
RESULT_CHARACTERS = 1000  # of each file at most: some 300 tokens, as in the recorded turns


def turns(encode_chat: Callable[[list[dict[str, str]]], list[int]], count: int = 12) -> list[list[int]]:
    """The prompts of `count` turns in tokens: each is the one before, the agent's call, and the file that it read.

    encode_chat  messages, each with `role` and `content` -> token ids that end where the answer begins
    With SmolLM2's template a prompt is the whole beginning of the next one. The recorded ones part four tokens before
    their end: that template opens an answer otherwise than it repeats one.
    """
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK}]
    prompts = [encode_chat(messages)]
    for path in _files()[: count - 1]:
        messages.append({"role": "assistant", "content": f'read_file("{path.name}")'})
        messages.append({"role": "user", "content": path.read_text(encoding="utf-8")[:RESULT_CHARACTERS]})
        prompts.append(encode_chat(messages))
    return prompts


def _files() -> list[Path]:
    """The library's own engine and what stands beside it: text that is on every machine which runs this."""
    package = Path(servelab.__file__).parent
    return [*sorted(package.glob("engine/*.py")), *sorted(package.glob("*.py"))]
