"""Clients that people use, pinned and unmodified, each in an environment of its own: what they make of a server."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from clients.environments import ENVIRONMENTS
from server_rig import Rig, make_rig
from test_real_model import serving
from wire_tap import Tap, tapping

pytestmark = pytest.mark.timeout(900)  # the first test of a client makes its environment, and runs all of its program
CHAT = "/v1/chat/completions"
PROGRAMS = Path(__file__).parent / "clients"
RUN_S = 240
SERVER = {"model_name": "default", "api_key": "sesame"}
KEY = {"authorization": "Bearer sesame"}
ASK = {
    "model": "default",
    "messages": [{"role": "user", "content": "Name three fruits."}],
    "temperature": 0,
    "max_tokens": 40,
}
COMMON = ("chat", "stream", "tools", "structured", "errors", "broken")
RAW = (*COMMON, "helper", "resume", "completion", "models")


@dataclass(frozen=True)
class Client:
    name: str
    cases: tuple[str, ...]
    command: Callable[[], list[str]]


def _clients() -> list[Any]:
    cases = {"openai-python-2": RAW, "openai-python-3": RAW, "openai-node": (*RAW, "runner")}
    cases["instructor"] = tuple(case for case in COMMON if case != "stream")
    here = [sys.executable, str(PROGRAMS / "openai_python" / "program.py")]
    quick = pytest.param(Client("openai-here", RAW, lambda: here), id="openai-here")
    others = []
    for e in ENVIRONMENTS:
        marks = [pytest.mark.long, pytest.mark.skipif(e.missing is not None, reason=f"{e.missing} was not found")]
        others.append(pytest.param(Client(e.name, cases.get(e.name, COMMON), e.command), id=e.name, marks=marks))
    return [quick, *others]


CLIENTS = _clients()


@dataclass
class Servers:
    """`real`: a process of its own with the default model; `fake`: one slow token after the other."""

    real: str
    fake: Rig
    results: dict[str, dict[str, Any]] = field(default_factory=dict)

    def result(self, client: Client, case: str) -> Any:
        """What the client's program says of `case`; it is run once for all of them."""
        if client.name not in self.results:
            self.results[client.name] = run(client, list(client.cases), self.real, self.fake.url)
        result = self.results[client.name][case]
        assert "failed" not in result, result["failed"]
        return result["value"]

    def answer(self, url: str, path: str = CHAT, **body: Any) -> dict[str, Any]:
        """By nothing but HTTP."""
        answer = httpx.post(f"{url}{path}", json=body, headers=KEY, timeout=60)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())


def run(client: Client, cases: list[str], real: str, fake: str) -> dict[str, Any]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(PROGRAMS),
        "HEADWAY_REAL": f"{real}/v1",
        "HEADWAY_FAKE": f"{fake}/v1",
    }
    done = subprocess.run(
        [*client.command(), *cases], env=environment, capture_output=True, text=True, timeout=RUN_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def servers(default_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    config = f"[server]\nmodel_name = '{SERVER['model_name']}'\napi_key = '{SERVER['api_key']}'"
    with (
        serving(default_model, tmp_path_factory.mktemp("server"), config) as real,
        make_rig(pace=0.01, runner={"context": 2048, "blocks": 512}, server=SERVER) as fake,
    ):
        yield Servers(real, fake)
        fake.wait_idle()


def having(*cases: str) -> Any:
    """Clients with one of these cases, each with those it has."""
    found = []
    for param in CLIENTS:
        client = param.values[0]
        for case in cases:
            if case in client.cases:
                found.append(pytest.param(client, case, id=f"{client.name}-{case}", marks=param.marks))
    return pytest.mark.parametrize(("client", "case"), found)


@having("chat", "stream", "helper")
def test_text_and_usage_are_those_of_the_api(servers: Servers, client: Client, case: str) -> None:
    answer = servers.answer(servers.real, **ASK)
    usage = answer["usage"]
    expected = {
        "text": answer["choices"][0]["message"]["content"],
        "usage": [usage["prompt_tokens"], usage["completion_tokens"]],
    }
    assert servers.result(client, case) == expected


@having("tools")
def test_calls_are_valid_and_their_results_go_back(servers: Servers, client: Client, case: str) -> None:
    result = servers.result(client, case)
    [[name, arguments]] = result["calls"]
    given = json.loads(arguments) if isinstance(arguments, str) else arguments
    assert name == "get_weather" and given.keys() == {"city", "days"}
    assert given["city"] in ("Paris", "Rome") and given["days"] in range(1, 15)
    assert result["answer"] or client.name == "instructor"  # which makes data of calls and sends nothing back


@having("runner")
def test_functions_that_the_client_runs(servers: Servers, client: Client, case: str) -> None:
    assert set(servers.result(client, case)) == {"Sunny, 21 degrees."}


@having("structured")
def test_structured_output_in_each_of_the_clients_ways(servers: Servers, client: Client, case: str) -> None:
    found = servers.result(client, case)
    assert found
    for person in found:
        assert person.keys() == {"name", "age", "colour"} and len(person["name"]) <= 12
        assert person["age"] in range(121) and person["colour"] in ("red", "green", "blue")


@having("errors")
def test_refusals_are_the_clients_errors_with_their_status(servers: Servers, client: Client, case: str) -> None:
    assert servers.result(client, case) == [400, 401, 404]


@having("broken")
def test_an_error_in_the_middle_is_an_error(servers: Servers, client: Client, case: str) -> None:
    result = servers.result(client, case)
    whole = servers.answer(servers.fake.url, **{**ASK, "max_tokens": 400})["choices"][0]["message"]["content"]
    assert result["text"] and whole.startswith(result["text"]) and result["text"] != whole
    assert "deadline" in (result["error"] or "")


@having("resume")
def test_a_stream_goes_on_where_it_was_left(servers: Servers, client: Client, case: str) -> None:
    whole = servers.answer(servers.fake.url, **ASK)["choices"][0]["message"]["content"]
    assert servers.result(client, case) == whole


@having("completion")
def test_completions(servers: Servers, client: Client, case: str) -> None:
    body = {"model": "default", "prompt": "Once", "max_tokens": 20, "temperature": 0}
    text = servers.answer(servers.real, "/v1/completions", **body)["choices"][0]["text"]
    assert servers.result(client, case) == {"text": text, "streamed": text}


@having("models")
def test_models_are_listed(servers: Servers, client: Client, case: str) -> None:
    assert servers.result(client, case) == ["default"]


@dataclass
class Busy:
    """A server with one seat, which is taken whenever a client comes for the first time."""

    rig: Rig
    tap: Tap
    holder: threading.Thread | None = None

    def hold(self) -> None:
        if self.holder is None:
            body = {"prompt": "x", "max_tokens": 100}
            post = self.rig.http.post
            self.holder = threading.Thread(
                target=post, args=("/v1/completions",), kwargs={"json": body, "headers": KEY}
            )
            self.holder.start()
            self.rig.wait(lambda load: load.running == 1)

    def wait(self) -> None:
        """Until the seat is free."""
        if self.holder is not None:
            self.holder.join(20)


@pytest.fixture(scope="module")
def busy() -> Iterator[Busy]:
    tap = Tap(CHAT)
    with (
        tapping(tap),
        make_rig(pace=0.01, engine={"max_sequences": 1}, queue={"max_requests": 0}, server=SERVER) as rig,
    ):
        made = Busy(rig, tap)
        tap.before = made.hold
        yield made
        made.wait()
        rig.wait_idle()


@pytest.mark.parametrize("client", CLIENTS)
def test_a_refused_client_comes_back_when_it_was_told_to(busy: Busy, client: Client) -> None:
    busy.wait()
    busy.holder = None
    busy.tap.seen.clear()
    result = run(client, ["retry"], busy.rig.url, busy.rig.url)["retry"]
    assert "failed" not in result, result["failed"]
    busy.wait()
    expected = busy.rig.http.post(CHAT, json=ASK, headers=KEY).json()["choices"][0]["message"]["content"]
    assert result["value"] == expected
    seen = busy.tap.seen[:-1]  # without ours
    assert [exchange.status for exchange in seen] == [429] * (len(seen) - 1) + [200] and len(seen) > 1
    for refused, next_one in pairwise(seen):
        told_s = int(refused.headers["retry-after-ms"]) / 1000
        assert next_one.came >= refused.answered + told_s - 0.005  # a timer's own error
