"""Every bad input is a clear 400, and a neighbour's stream does not notice."""

import json
import threading
from typing import Any

import pytest
from server_rig import Rig, make_rig

USER = [{"role": "user", "content": "hi"}]
CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
DEEP: dict[str, Any] = {}
for _ in range(100):
    DEEP = {"items": DEEP}


def schema_format(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}


BAD: list[tuple[str, dict[str, Any], str | None]] = [
    (CHAT, {"messages": []}, "messages"),
    (CHAT, {}, "messages"),
    (CHAT, {"messages": USER, "n": 5_000_000}, "n"),
    (CHAT, {"messages": USER, "n": 0}, "n"),
    (CHAT, {"messages": USER, "logprobs": True, "top_logprobs": 10**9}, "top_logprobs"),
    (CHAT, {"messages": USER, "top_logprobs": 2}, "top_logprobs"),
    (CHAT, {"messages": USER, "temperature": 3}, "temperature"),
    (CHAT, {"messages": USER, "temperature": "1"}, "temperature"),
    (CHAT, {"messages": USER, "max_tokens": 0}, "max_tokens"),
    (CHAT, {"messages": USER, "max_tokens": True}, "max_tokens"),
    (CHAT, {"messages": USER, "max_tokens": 100_000}, "max_tokens"),
    (CHAT, {"messages": USER, "max_tokens": 5, "min_tokens": 6}, "min_tokens"),
    (CHAT, {"messages": USER, "top_k": 2**31}, "top_k"),
    (CHAT, {"messages": USER, "min_tokens": 2**31}, "min_tokens"),
    (CHAT, {"messages": USER, "repetition_penalty": 1e-30}, "repetition_penalty"),
    (CHAT, {"messages": USER, "seed": 2**64}, "seed"),
    (CHAT, {"messages": USER, "stop": [""]}, "stop"),
    (CHAT, {"messages": USER, "stop": ["x"] * 17}, "stop"),
    (CHAT, {"messages": USER, "stop": "x" * 1025}, "stop"),
    (CHAT, {"messages": USER, "stop": 5}, "stop"),
    (CHAT, {"messages": USER, "logit_bias": {"99999": 1}}, "logit_bias"),
    (CHAT, {"messages": USER, "logit_bias": {"-1": 1}}, "logit_bias"),
    (CHAT, {"messages": USER, "logit_bias": {"x": 1}}, "logit_bias.x"),
    (CHAT, {"messages": USER, "logit_bias": {"1_0": 1}}, "logit_bias.1_0"),
    (CHAT, {"messages": USER, "logit_bias": {" 5": 1}}, "logit_bias. 5"),
    (CHAT, {"messages": USER, "logit_bias": {"05": 1}}, "logit_bias.05"),
    (CHAT, {"messages": USER, "logit_bias": {"5.0": 1}}, "logit_bias.5.0"),
    (CHAT, {"messages": USER, "logit_bias": {"1" * 5000: 1}}, ("logit_bias." + "1" * 5000)[:200]),
    (CHAT, {"messages": USER, "logit_bias": {"5": 101}}, "logit_bias.5"),
    (CHAT, {"messages": USER, "stop_token_ids": [99_999]}, "stop_token_ids"),
    (CHAT, {"messages": USER, "tools": [{"type": "function"}]}, "tools.0.function"),
    (CHAT, {"messages": USER, "response_format": {"type": "xml"}}, "response_format.type"),
    (CHAT, {"messages": USER, "response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    (CHAT, {"messages": USER, "response_format": schema_format(None)}, "response_format.json_schema.schema"),
    (CHAT, {"messages": USER, "response_format": schema_format({"not": {}})}, "response_format.json_schema.schema"),
    (CHAT, {"messages": USER, "response_format": schema_format({"enum": []})}, "response_format.json_schema.schema"),
    (CHAT, {"messages": USER, "response_format": schema_format(DEEP)}, "response_format.json_schema.schema"),
    (CHAT, {"messages": USER, "response_format": {**schema_format({}), "type": "text"}}, "response_format.json_schema"),
    (
        CHAT,
        {"messages": USER, "response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}},
        "structured_outputs",
    ),
    (CHAT, {"messages": USER, "structured_outputs": {}}, "structured_outputs"),
    (CHAT, {"messages": USER, "structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
    (CHAT, {"messages": USER, "structured_outputs": {"json": {"format": "no-such"}}}, "structured_outputs.json"),
    (CHAT, {"messages": USER, "structured_outputs": {"json": {"uniqueItems": True}}}, "structured_outputs.json"),
    (CHAT, {"messages": USER, "structured_outputs": {"json": "[" * 100_000}}, "structured_outputs.json"),
    (
        CHAT,
        {"messages": USER, "structured_outputs": {"whitespace_pattern": " "}},
        "structured_outputs.whitespace_pattern",
    ),
    (TEXT, {"prompt": "x", "structured_outputs": {"regex": "("}}, "structured_outputs.regex"),
    (TEXT, {"prompt": "x", "structured_outputs": {"choice": []}}, "structured_outputs.choice"),
    (TEXT, {"prompt": "x", "structured_outputs": {"grammar": "start: x"}}, "structured_outputs.grammar"),
    (TEXT, {"prompt": "x", "response_format": {"type": "json_object"}}, "response_format"),
    (CHAT, {"messages": USER, "service_tier": "scale"}, "service_tier"),
    (CHAT, {"messages": USER, "on_timeout": "cancel"}, "on_timeout"),
    (CHAT, {"messages": USER, "store": True}, "store"),
    (CHAT, {"messages": USER, "audio": {}}, "audio"),
    (CHAT, {"messages": USER, "temprature": 1}, "temprature"),
    (CHAT, {"messages": USER, "stream_options": {"include_usage": True}}, "stream_options"),
    (CHAT, {"messages": [{"role": "user"}]}, "messages.0.content"),
    (CHAT, {"messages": [{"role": "king", "content": "x"}]}, "messages.0.role"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages.0.content"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages.0.content"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "x": 1}]}]}, "messages.0.content"),
    (CHAT, {"messages": [{"role": "assistant", "content": "x", "tool_calls": [{}]}]}, "messages.0.tool_calls.0.id"),
    (CHAT, {"messages": [{"role": "user", "content": "x" * 600}]}, "messages"),
    (TEXT, {"prompt": ""}, "prompt"),
    (TEXT, {"prompt": []}, "prompt"),
    (TEXT, {"prompt": [1, "a"]}, "prompt"),
    (TEXT, {"prompt": [[]]}, "prompt"),
    (TEXT, {"prompt": {"a": 1}}, "prompt"),
    (TEXT, {"prompt": [10**30]}, "prompt"),
    (TEXT, {"prompt": [-1]}, "prompt"),
    (TEXT, {"prompt": [5, 99_999]}, "prompt"),
    (TEXT, {"prompt": ["x"] * 65}, "prompt"),
    (TEXT, {"prompt": [*["x"] * 63, "y" * 600]}, "prompt"),  # one bad apple
    (TEXT, {"prompt": [[5], [5, 99_999]]}, "prompt"),
    (TEXT, {"prompt": ["x", ""]}, "prompt"),
    (TEXT, {"prompt": "x" * 512}, "prompt"),
    (TEXT, {"prompt": "x" * 500, "max_tokens": 20}, "max_tokens"),
    (TEXT, {"prompt": "x", "suffix": "y"}, "suffix"),
    (TEXT, {"prompt": "x", "logprobs": 21}, "logprobs"),
    (TEXT, {"prompt": "x", "logprobs": -1}, "logprobs"),
]
RAW: list[tuple[bytes, str | None]] = [
    (b'{"messages":[{"role":"user","content":"x"}],"temperature":NaN}', "temperature"),
    (b'{"messages":[{"role":"user","content":"x"}],"temperature":Infinity}', "temperature"),
    (b'{"messages":[{"role":"user","content":"x"}],"top_p":1e999}', "top_p"),
    (b'{"messages":[{"role":"user","content":"x"}],"stop":NaN}', "stop"),
    (b'{"messages":[{"role":"user","content":"x"}],"tools":NaN}', "tools"),
    (b'{"messages":[{"role":"user","content":"\\ud800"}]}', None),
    (b'{"messages":[{"role":"user","content":"x"}],"\\ud800":1}', None),
    (b'{"messages":', None),
    (b"", None),
    (b"[]", None),
    (b"\xff\xfe", None),
    (b"[" * 100_000, None),
    (b'{"messages":[{"role":"user","content":"x"}],"tools":' + b"[" * 10_000, None),
    (b'{"messages":[{"role":"user","content":"x"}],' + b",".join(b'"k%d":1' % i for i in range(30_000)) + b"}", "k0"),
    (b"{" + b",".join(b'"k%d":1' % i for i in range(100_000)) + b"}", None),
    (b'{"messages":[' + b",".join([b"{}"] * 1_000_000) + b"]}", None),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body", "param"), BAD, ids=lambda value: str(value)[:60])
def test_bad_field(rig: Rig, path: str, body: dict[str, Any], param: str | None, stream: bool) -> None:
    if "stream_options" in body and stream:
        pytest.skip("good when streamed")
    check(rig.http.post(path, json={**body, "stream": stream}), param)


@pytest.mark.parametrize(("data", "param"), RAW, ids=lambda value: str(value)[:60])
def test_bad_json(rig: Rig, data: bytes, param: str | None) -> None:
    check(rig.http.post(CHAT, content=data), param)


def check(response: Any, param: str | None) -> None:
    assert response.status_code == 400, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-should-retry"] == "false"
    error = json.loads(response.text, parse_constant=lambda name: pytest.fail(name))["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert param is None or param.split(".")[0] in error["message"] or param == "messages"


def test_messages_are_readable(rig: Rig) -> None:
    def message(path: str, body: dict[str, Any]) -> str:
        return str(rig.http.post(path, json=body).json()["error"]["message"])

    assert "600" not in message(CHAT, {"messages": USER, "tools": [{}]})
    long = message(TEXT, {"prompt": "x" * 600})
    assert "600 tokens" in long and "512" in long
    assert message(CHAT, {"messages": USER, "n": 999}) == "n: 999 is more than the 128 that this server takes"
    parts = [{"type": "text", "text": "a", "cache_control": {}}]
    said = message(CHAT, {"messages": [{"role": "user", "content": parts}]})
    assert said == "messages.0.content: cache_control in a text part is not supported"


def test_unknown_model(rig: Rig) -> None:
    response = rig.http.post(CHAT, json={"model": "gpt-9", "messages": USER})
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"
    assert rig.http.get("/v1/models/gpt-9").status_code == 404


def test_too_large_a_body() -> None:
    with make_rig(server={"max_body_bytes": 2000}) as rig:
        response = rig.http.post(TEXT, json={"prompt": "x" * 3000})
        assert response.status_code == 413 and response.json()["error"]["code"] == "body_too_large"
        chunked = rig.http.post(TEXT, content=iter([b"x" * 1500, b"x" * 1500]))
        assert chunked.status_code == 413


def test_api_key() -> None:
    with make_rig(server={"api_key": "sesame"}) as rig:
        body = {"prompt": "x", "max_tokens": 1}
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "sesame"}):
            refused = rig.http.post(TEXT, json=body, headers=headers)
            assert refused.status_code == 401 and refused.json()["error"]["code"] == "invalid_api_key"
        assert rig.http.post("/tokenize", json=body).status_code == 401
        assert rig.http.post(TEXT, json=body, headers={"authorization": "Bearer sesame"}).status_code == 200
        assert rig.http.post(TEXT, json=body, headers={"authorization": "bearer  sesame"}).status_code == 200
        for path in ("/v1/models", "/health/live", "/health/ready", "/metrics", "/"):
            assert rig.http.get(path).status_code == 200


def test_api_key_beyond_ascii() -> None:
    with make_rig(server={"api_key": "s\u00e9same"}) as rig:
        body = {"prompt": "x", "max_tokens": 1}
        for key, status in (("s\u00e9same".encode(), 200), ("s\u00e9same".encode("latin-1"), 401), (b"\xff\x80", 401)):
            answer = rig.http.post(TEXT, json=body, headers=[(b"authorization", b"Bearer " + key)])
            assert answer.status_code == status


def test_one_bad_prompt_starts_none_of_them(rig: Rig) -> None:
    rig.wait_idle()
    steps = rig.load().steps
    for stream in (False, True):
        body = {"prompt": [*["x"] * 8, "y" * 600], "max_tokens": 5, "stream": stream}
        assert rig.http.post(TEXT, json=body).status_code == 400
    assert rig.wait_idle().steps == steps


def test_what_load_tools_send_is_taken(rig: Rig) -> None:
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
        "max_completion_tokens": 3,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "n": 1,
        "user": "u",
        "metadata": {"a": "b"},
        "store": False,
        "service_tier": "auto",
        "parallel_tool_calls": True,
        "tools": None,
        "response_format": {"type": "text"},
        "top_k": -1,
        "min_p": 0.1,
    }
    assert rig.http.post(CHAT, json=body, headers={"X-Correlation-ID": "1"}).status_code == 200
    dumped = {"role": "assistant", "content": "x", "refusal": None, "annotations": None, "tool_calls": None}
    history = {"messages": [*USER, dumped, *USER], "max_tokens": 2}  # an answer of openai-python, sent back
    assert rig.http.post(CHAT, json=history).status_code == 200
    completion = {
        "model": "tiny",
        "prompt": "x",
        "repetition_penalty": 1.0,
        "logprobs": None,
        "min_tokens": 2,
        "max_tokens": 3,
    }
    assert rig.http.post(TEXT, json=completion).status_code == 200


def test_a_neighbour_does_not_notice() -> None:
    with make_rig(pace=0.01) as rig:
        body = {"model": "tiny", "prompt": "n", "max_tokens": 80, "temperature": 0}
        alone = rig.http.post(TEXT, json=body).json()["choices"][0]["text"]
        answer: list[str] = []
        neighbour = threading.Thread(
            target=lambda: answer.append(rig.http.post(TEXT, json=body).json()["choices"][0]["text"])
        )
        neighbour.start()
        for path, bad, _ in BAD:
            rig.http.post(path, json=bad)
        for data, _ in RAW:
            rig.http.post(CHAT, content=data)
        neighbour.join()
        assert answer == [alone]
        rig.wait_idle()


def test_a_huge_prompt_is_refused_and_others_go_on() -> None:
    with make_rig(pace=0.002) as rig:
        body = {"model": "tiny", "prompt": "n", "max_tokens": 300, "temperature": 0, "stream": True}
        with rig.http.stream("POST", TEXT, json=body) as running:
            lines = running.iter_lines()
            next(lines)
            refused = rig.http.post(TEXT, json={"prompt": "word " * 200_000})
            assert refused.status_code == 400 and refused.json()["error"]["code"] == "context_length_exceeded"
            assert "1000000 tokens" in refused.json()["error"]["message"]
            assert list(lines)[-2] == "data: [DONE]"
