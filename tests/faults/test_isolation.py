"""What one caller can learn of another, or of the machine: nothing by prefix cache, browser, template or path."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from server_rig import Rig, make_rig
from shared_rig import rig_in

TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
KEYS = ({"key": "ka", "tenant": "a"}, {"key": "kb", "tenant": "b"}, {"key": "ka2", "tenant": "a"})
PROMPT = "a prompt of more than one block, so that some of it can be found again " * 2


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig_in(tmp_path_factory.mktemp("server")) as made:
        yield made


def cached(rig: Rig, key: str | None, user: str | None = None) -> int:
    """How many tokens of PROMPT were found in the prefix cache."""
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    body = {"prompt": PROMPT, "max_tokens": 1, **({} if user is None else {"user": user})}
    usage = rig.http.post(TEXT, json=body, headers=headers).json()["usage"]
    return int(usage["prompt_tokens_details"]["cached_tokens"])


def test_one_tenant_never_finds_what_another_has_asked() -> None:
    with make_rig(keys=KEYS) as rig:
        assert cached(rig, "ka") == 0
        assert cached(rig, "ka2", user="b") > 100  # two keys, one tenant
        assert cached(rig, "kb") == 0
        assert cached(rig, "kb", user="a") > 100  # its own now; `user` cannot reach for others' nor away


def test_an_open_server_shares_with_all() -> None:
    with make_rig() as rig:
        assert cached(rig, None, user="a") == 0
        assert cached(rig, None, user="b") > 100


def test_no_page_of_another_site_may_read_an_answer(rig: Rig) -> None:
    origin = {"origin": "https://evil.example"}
    answer = rig.http.post(TEXT, json={"prompt": "x", "max_tokens": 1}, headers=origin)
    asked = rig.http.options(TEXT, headers={**origin, "access-control-request-method": "POST"})
    for response in (answer, asked):
        assert not [name for name in response.headers if name.startswith("access-control")]
    assert asked.status_code == 405


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/v1/models/../../etc/passwd",
        "/v1/models/%2fetc%2fpasswd", "/v1/responses/..%2f..%2fetc%2fpasswd", "/v1/responses/%00",
        "/v1/streams/..%2f..%2fetc%2fpasswd", "/v1/streams/%2fetc%2fpasswd?after=0", "/static/x", "//etc/passwd",
    ],
)  # fmt: skip
def test_no_path_of_a_request_reaches_a_file(rig: Rig, path: str) -> None:
    answer = rig.http.get(rig.url + path)
    assert answer.status_code in (400, 404), answer.text
    assert "root:" not in answer.text and answer.json()["error"]["message"]


def test_a_template_is_of_the_model_and_what_it_shows_of_a_client_is_text(rig: Rig) -> None:
    for text in ("{{ 7 * 7 }}", "{% include '/etc/passwd' %}", "{{ ''.__class__.__mro__ }}"):
        body = {"messages": [{"role": "user", "content": text}]}
        ids = rig.http.post("/tokenize", json=body).json()["tokens"]
        assert text in rig.http.post("/detokenize", json={"tokens": ids}).json()["prompt"]
        refused = rig.http.post(CHAT, json={**body, "chat_template_kwargs": {"x": text}})
        assert refused.status_code == 400
        assert rig.http.post(CHAT, json={**body, "chat_template": text}).status_code == 400


def test_a_schema_refers_to_nothing_outside_itself(rig: Rig, tmp_path: Path) -> None:
    secret = tmp_path / "schema.json"
    secret.write_text('{"type": "integer"}')
    for reference in (f"file://{secret}", str(secret), f"{rig.url}/openapi.json"):
        body = {"prompt": "x", "structured_outputs": {"json": {"$ref": reference}}}
        assert rig.http.post(TEXT, json=body).status_code == 400
