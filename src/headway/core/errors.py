"""One tree of errors; `delivery/http_errors.py` maps it to HTTP in one table.

HeadwayError
├── InvalidRequest          what the client sent cannot be served, now or later        400
│   ├── ContextOverflow     prompt (plus output) does not fit the context              400
│   ├── PromiseImpossible   no waiting makes its promise possible                      400
│   └── UnknownModel                                                                    404
├── Unauthorized            missing or wrong API key                                    401
├── Overloaded              refused now, come back in `retry_after_s`                   429
├── DeadlineExceeded        its time ran out                                            504
├── EngineUnavailable       engine loading, hung or dead; come back                     503
├── RequestFailed           this one request failed inside the engine                   500
└── ModelError              a model cannot be loaded (files, architecture, types)       start-up only
"""


class HeadwayError(Exception):
    """Base of all errors Headway raises on purpose. `code` is a stable machine-readable word."""

    code = "internal_error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code


class InvalidRequest(HeadwayError):
    """The request itself is wrong. `param` names the field as the client spelled it (None: the whole body)."""

    code = "invalid_value"

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.param = param


class ContextOverflow(InvalidRequest):
    """Prompt tokens, or prompt plus requested output, exceed the model's context."""

    code = "context_length_exceeded"


class PromiseImpossible(InvalidRequest):
    """The promise could not be kept for this request even alone: no waiting mends that."""

    code = "promise_impossible"


class UnknownModel(InvalidRequest):
    """The request names a model this server does not serve."""

    code = "model_not_found"


class Unauthorized(HeadwayError):
    """No valid API key came with the request."""

    code = "invalid_api_key"


class Overloaded(HeadwayError):
    """Refused to keep the promise to those already accepted; worth retrying after `retry_after_s` seconds (<= 60)."""

    code = "overloaded"

    def __init__(self, message: str, *, retry_after_s: float, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.retry_after_s = min(60.0, max(0.001, retry_after_s))


class DeadlineExceeded(HeadwayError):
    """The request's one deadline (queue + prefill + decode) passed."""

    code = "deadline_exceeded"


class EngineUnavailable(HeadwayError):
    """The engine is loading, hung or dead."""

    code = "engine_unavailable"

    def __init__(self, message: str, *, retry_after_s: float = 1.0, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.retry_after_s = min(60.0, max(0.001, retry_after_s))


class RequestFailed(HeadwayError):
    """This request failed in the engine (for example non-finite logits); its neighbours did not."""

    code = "request_failed"


class ModelError(HeadwayError):
    """A model cannot be loaded: missing or truncated files, an unknown architecture or tensor type."""

    code = "model_error"

    def __init__(self, message: str) -> None:
        most = 2000  # it may quote a file, which can hold anything at any length
        super().__init__(message if len(message) <= most else f"{message[:most]} [...]")
