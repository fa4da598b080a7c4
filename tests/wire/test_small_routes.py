"""Tokenize, detokenize, generate, metrics, root, OpenAPI."""

import json

from server_rig import Rig, make_rig, sse


def test_tokenize_and_back(rig: Rig) -> None:
    text = "Grüße \N{GRINNING FACE}"
    tokens = rig.http.post("/tokenize", json={"prompt": text}).json()
    assert tokens["count"] == len(tokens["tokens"]) == len(text.encode()) and tokens["max_model_len"] == 512
    assert rig.http.post("/detokenize", json={"tokens": tokens["tokens"]}).json() == {"prompt": text}
    chat = rig.http.post("/tokenize", json={"messages": [{"role": "user", "content": "a"}]}).json()
    assert rig.http.post("/detokenize", json={"tokens": chat["tokens"]}).json() == {"prompt": "<user>a\n<assistant>"}
    assert rig.http.post("/tokenize", json={}).status_code == 400
    assert rig.http.post("/detokenize", json={"tokens": [10**9]}).status_code == 400
    assert rig.http.post("/detokenize", json={"tokens": [-1]}).status_code == 400


def test_more_ids_than_are_written_at_once(rig: Rig) -> None:
    count = 2 * 65_536 + 5
    answer = rig.http.post("/tokenize", json={"prompt": "ab" * count}).json()
    assert answer["count"] == 2 * count and answer["tokens"] == answer["tokens"][:2] * count


def test_generate(rig: Rig) -> None:
    query: dict[str, str | int] = {"prompt": "Once", "max_tokens": 20, "temperature": 0}
    events = sse(rig.http.get("/generate", params=query).text)
    assert events[-1] == "[DONE]" and json.loads(events[-2])["finish_reason"] == "length"
    text = "".join(json.loads(event).get("text", "") for event in events[:-1])
    plain = rig.http.get("/generate", params=query, headers={"accept": "text/plain"})
    assert plain.headers["content-type"] == "text/plain; charset=utf-8"
    assert plain.text == text + "\n"
    for bad in (
        {"prompt": "x", "max_tokens": "0"},
        {},
        {"prompt": "x", "temperature": "nan"},
        {"prompt": "x", "q": "1"},
        {"prompt": ["x", "y"]},
        {"prompt": "x", "top_k": str(2**31)},
    ):
        response = rig.http.get("/generate", params=bad)
        assert response.status_code == 400 and response.json()["error"]["type"] == "invalid_request_error"


def test_the_examples_of_the_document_are_served() -> None:
    with make_rig(runner={"context": 4096, "blocks": 1024}) as rig:
        served = 0
        for path, methods in rig.http.get("/openapi.json").json()["paths"].items():
            for method, route in methods.items():
                content = route.get("requestBody", {}).get("content", {}).get("application/json", {})
                for name, example in content.get("examples", {}).items():
                    body = example["value"]
                    if path.endswith("completions"):
                        body = {"max_tokens": 200, **body}
                    answer = rig.http.request(method, path, json=body)
                    assert answer.status_code == 200, (path, name, answer.text)
                    served += 1
        assert served >= 10


def test_root_and_openapi(rig: Rig) -> None:
    assert "/v1/chat/completions" in rig.http.get("/").json()["endpoints"]
    schemas = rig.http.get("/openapi.json").json()["components"]["schemas"]
    assert {"ChatRequest", "CompletionRequest", "TokenizeRequest", "Message"} <= schemas.keys()
    missing = rig.http.get("/v2/nothing")
    assert missing.status_code == 404 and missing.json()["error"]["code"] == "not_found"
    wrong = rig.http.get("/v1/chat/completions")
    assert wrong.status_code == 405 and wrong.headers["allow"] == "POST"
    assert wrong.json()["error"]["code"] == "method_not_allowed"


def test_head(rig: Rig) -> None:
    """HTTP has HEAD wherever GET is, and load balancers use it; only /generate is work."""
    for path in ("/", "/health", "/health/live", "/health/ready", "/metrics", "/v1/models", "/v1/models/tiny"):
        head = rig.http.head(path)
        assert head.status_code == 200 and head.content == b"", path
    assert rig.http.head("/generate", params={"prompt": "x"}).status_code == 405


def values(rig: Rig) -> dict[str, float]:
    lines = [line for line in rig.http.get("/metrics").text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_metrics_count_what_happened() -> None:
    with make_rig() as rig:
        for stream in (False, True):
            rig.http.post("/v1/completions", json={"prompt": "abc", "max_tokens": 7, "stream": stream, "top_k": 1})
        rig.http.post("/v1/completions", json={"prompt": "x" * 600})
        rig.wait_idle()
        seen = values(rig)
        assert seen['headway_requests_total{outcome="length"}'] == 2
        assert seen['headway_requests_total{outcome="invalid"}'] == 1
        assert seen["headway_requests_live"] == 0
        assert seen["headway_prompt_tokens_total"] == 6
        assert seen["headway_generated_tokens_total"] == 14
        assert seen["headway_time_to_first_token_seconds_count"] == 2
        assert seen["headway_request_seconds_count"] == 3
        assert seen["headway_ready"] == 1 and seen["headway_kv_usage_ratio"] == 0
        assert seen["headway_engine_steps_total"] > 0
