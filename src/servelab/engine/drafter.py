"""Who guesses the next tokens (section 8.5). The engine does not know: a look-up in the text, or a small model."""

from typing import Protocol

from servelab.engine.request import Request


class Drafter(Protocol):
    """What `Engine` asks of a drafter. It is asked before each decode step of a request, so it can follow the text."""

    def propose(self, request: Request) -> list[int]:
        """A draft of the tokens behind `request.token_ids`, of any length, or none. Changes no request."""

    def forget(self, request_id: str) -> None:
        """The request has left. Nothing to do if it was never drafted for."""
