"""What a call to a server can end with.

ClientError
├── ConnectionFailed     no answer came: refused, reset, or silent for too long before the first byte
├── APIStatusError       the server answered with an HTTP error
├── StreamFailed         the server ended a stream with an error event
├── StreamDropped        a stream broke off, and what the caller chose for that could not be done
├── DeadlineExceeded     the call's `timeout` passed, or a time limit of the server's own
└── CircuitOpen          not sent: the server has failed so often of late that it is left alone for a while
"""

from headway.core.errors import HeadwayError


class ClientError(HeadwayError):
    """Base of all errors of the client library."""

    code = "client_error"


class ConnectionFailed(ClientError):
    """No answer came. `may_retry`: it is not just slow, so that asking again does not double its work."""

    code = "connection_failed"

    def __init__(self, message: str, *, may_retry: bool = True) -> None:
        super().__init__(message)
        self.may_retry = may_retry


class APIStatusError(ClientError):
    """An HTTP error. `code`, `message` and `param` are the server's, as far as it gave them; `retry_after` is the
    seconds after which it wants to be asked again; `may_retry` what its x-should-retry header says (None: nothing)."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
        may_retry: bool | None = None,
    ) -> None:
        super().__init__(message, code=code or f"http_{status}")
        self.status = status
        self.param = param
        self.request_id = request_id
        self.retry_after = retry_after
        self.may_retry = may_retry


class StreamFailed(ClientError):
    """An error event, or something that is no event stream. `partial` is the text that came before."""

    code = "stream_failed"

    def __init__(self, message: str, *, code: str | None = None, param: str | None = None, partial: str = "") -> None:
        super().__init__(message, code=code)
        self.param = param
        self.partial = partial


class StreamDropped(ClientError):
    """A stream broke off before its end. `partial` is the text that came before."""

    code = "stream_dropped"

    def __init__(self, message: str, *, partial: str = "") -> None:
        super().__init__(message)
        self.partial = partial


class DeadlineExceeded(ClientError):
    """The call's `timeout` passed, by whichever side's clock, or a limit of the server's own: the message says which.
    `partial` is the text that a stream had given."""

    code = "deadline_exceeded"

    def __init__(self, message: str = "the call's timeout has passed", *, partial: str = "") -> None:
        super().__init__(message)
        self.partial = partial


class CircuitOpen(ClientError):
    """Not sent; the server is asked again in `retry_after` seconds at the earliest."""

    code = "circuit_open"

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"the server keeps failing; it is asked again in {retry_after:.1f} s at the earliest")
        self.retry_after = retry_after
