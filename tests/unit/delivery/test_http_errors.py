import json

import pytest

from headway.core import errors
from headway.delivery.http_errors import TABLE, error_body, error_response


def all_errors() -> list[type[errors.HeadwayError]]:
    """But for the client library's, which no server raises."""
    found = [errors.HeadwayError]
    for kind in found:
        found += [k for k in kind.__subclasses__() if not k.__module__.startswith("headway.client")]
    return found


def make(kind: type[errors.HeadwayError], message: str = "m") -> errors.HeadwayError:
    return kind(message, retry_after_s=1.2) if kind is errors.Overloaded else kind(message)


@pytest.mark.parametrize("kind", all_errors())
def test_every_error_has_a_status_and_a_whole_body(kind: type[errors.HeadwayError]) -> None:
    response = error_response(make(kind, "lone \ud800"))
    assert response.status_code in {row[0] for row in TABLE.values()}
    body = json.loads(bytes(response.body))["error"]
    assert body.keys() == {"message", "type", "param", "code"}


def test_retry_headers() -> None:
    headers = error_response(errors.Overloaded("m", retry_after_s=1.2)).headers
    assert (headers["retry-after"], headers["retry-after-ms"]) == ("2", "1200")
    assert error_response(errors.Overloaded("m", retry_after_s=0.0)).headers["retry-after"] == "1"
    assert error_response(errors.Overloaded("m", retry_after_s=1e9)).headers["retry-after"] == "60"
    assert error_response(errors.EngineUnavailable("m")).headers["retry-after"] == "1"
    assert error_response(errors.InvalidRequest("m")).headers["x-should-retry"] == "false"
    assert "x-should-retry" not in error_response(errors.RequestFailed("m")).headers


def test_what_waiting_cannot_mend_is_not_to_be_retried() -> None:
    response = error_response(errors.PromiseImpossible("m"))
    assert (response.status_code, response.headers["x-should-retry"]) == (400, "false")
    assert json.loads(bytes(response.body))["error"]["code"] == "promise_impossible"


def test_param() -> None:
    body = error_body(errors.InvalidRequest("m", param="temperature"))
    assert json.loads(body)["error"] == {
        "message": "m",
        "type": "invalid_request_error",
        "param": "temperature",
        "code": "invalid_value",
    }
