"""What the client finds out about a server by itself."""

from collections.abc import Callable
from typing import Any

import pytest
from script_server import Reply, Script, error, whole

from headway.client import APIStatusError, AsyncClient

ANSWER = whole({"choices": [{"index": 0, "message": {"content": "hi"}, "finish_reason": "stop"}]})


def listing(*names: str) -> Reply:
    return whole({"object": "list", "data": [{"id": name, "object": "model"} for name in names]})


async def test_the_first_model_is_asked_for_once(serve: Callable[..., Script], time: Any) -> None:
    script = serve(listing("a", "b"), ANSWER, ANSWER, ANSWER)
    async with AsyncClient(script.url, timing=time.timing) as own:
        await own.chat("hi")
        await own.chat("hi")
        await own.chat("hi", model="b")
    assert [seen.path for seen in script.seen] == ["/v1/models", *["/v1/chat/completions"] * 3]
    assert [body["model"] for body in script.bodies[1:]] == ["a", "a", "b"]


@pytest.mark.parametrize("reply", [listing(), whole([]), whole({"data": [1, {}]}), error(404)])
async def test_a_server_without_a_list_is_given_no_name(serve: Callable[..., Script], time: Any, reply: Reply) -> None:
    script = serve(reply, ANSWER)
    async with AsyncClient(script.url, timing=time.timing) as own:
        await own.chat("hi")
    assert "model" not in script.bodies[1]


async def test_a_key_that_is_wrong_is_wrong_for_the_list_too(serve: Callable[..., Script], time: Any) -> None:
    async with AsyncClient(serve(error(401, "no such key")).url, timing=time.timing) as own:
        with pytest.raises(APIStatusError, match="no such key"):
            await own.chat("hi")


async def test_models(serve: Callable[..., Script], time: Any) -> None:
    async with AsyncClient(serve(listing("a", "b")).url, timing=time.timing) as own:
        assert await own.models() == ["a", "b"]
