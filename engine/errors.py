"""What the engine refuses, in the words of the OpenAI API's error object."""

from __future__ import annotations


class RequestError(Exception):
    """A request that cannot be served as it is; the message says what to change.

    status: HTTP status; kind: the error object's `type`; code: its `code`; param: which field is meant.
    """

    status = 400
    kind = "invalid_request_error"

    def __init__(self, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.code, self.param = code, param


class NotFound(RequestError):
    """There is no such model or path."""

    status = 404


class Overloaded(RequestError):
    """More requests wait than the engine takes; the same request can succeed later.

    retry_after_s: when to try again, seconds.
    """

    status = 503
    kind = "server_error"

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message, code="overloaded")
        self.retry_after_s = retry_after_s


class EngineFailed(RequestError):
    """The engine could not finish a request through no fault of the caller."""

    status = 500
    kind = "server_error"
