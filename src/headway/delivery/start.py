"""Starts what the body of a request asks for, however it is to be sent."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from headway.delivery.caller import Caller
from headway.delivery.openai_chat import ChatStream, ChatWhole
from headway.delivery.openai_completions import Choices, CompletionStream, CompletionWhole
from headway.delivery.openai_format import Head, WholeFormat
from headway.delivery.openai_request import (
    chat_requests,
    check_model,
    choices_made,
    completion_requests,
    usage_options,
)
from headway.delivery.recording import RecordedFormat
from headway.delivery.schemas import ChatRequest, CompletionRequest
from headway.serving.frontend import Frontend
from headway.serving.generation import Generation
from headway.serving.request import Prompt, Request, TextPrompt, Timing, TokenPrompt


@dataclass(frozen=True, slots=True)
class Exchange:
    """The generations of one response, and how they look in it."""

    id: str
    generations: list[Generation]
    stream: Callable[[], RecordedFormat]
    whole: Callable[[], WholeFormat]


async def start_chat(frontend: Frontend, body: ChatRequest, timing: Timing, caller: Caller) -> Exchange:
    """Raises InvalidRequest, UnknownModel, Overloaded and EngineUnavailable."""
    check_model(body.model, frontend.model_name)
    usage = usage_options(body)
    asked = chat_requests(body, frontend.settings.limits, timing, caller)
    count, ids = len(asked), bool(body.return_token_ids)
    kind = "chat.completion.chunk" if body.stream else "chat.completion"
    head = Head("chatcmpl", kind, frontend.model_name, frontend.fingerprint, frontend.worker, asked[0].lane.label)
    return Exchange(
        head.id,
        start_all(frontend, asked, count),
        lambda: ChatStream(head, count, usage, frontend.token_text, ids),
        lambda: ChatWhole(head, count, frontend.token_text, ids),
    )


async def start_completion(frontend: Frontend, body: CompletionRequest, timing: Timing, caller: Caller) -> Exchange:
    """Raises InvalidRequest, UnknownModel, Overloaded and EngineUnavailable."""
    check_model(body.model, frontend.model_name)
    usage = usage_options(body)
    asked = completion_requests(body, frontend.settings.limits, timing, caller)
    made, ids = choices_made(body), bool(body.return_token_ids)
    echo = [await _text(frontend, request.prompt) for request in asked[::made]] if body.echo else []
    choices = Choices(len(asked) // made, made, body.n or 1, echo)
    lane = asked[0].lane.label
    head = Head("cmpl", "text_completion", frontend.model_name, frontend.fingerprint, frontend.worker, lane)
    return Exchange(
        head.id,
        start_all(frontend, asked, made),
        lambda: CompletionStream(head, choices, usage, frontend.token_text, ids),
        lambda: CompletionWhole(head, choices, frontend.token_text, body.logprobs is not None, ids),
    )


async def _text(frontend: Frontend, prompt: Prompt) -> str:
    """What a prompt looks like. Raises InvalidRequest for ids that the model does not have."""
    if isinstance(prompt, TextPrompt):
        return prompt.text
    assert isinstance(prompt, TokenPrompt)
    return await frontend.detokenize(prompt.ids)


def start_all(frontend: Frontend, requests: list[Request], choices: int) -> list[Generation]:
    """All of them or, if the gate refuses one, none. Each `choices` in a row have one prompt: the first of them leads.

    Raises Overloaded and EngineUnavailable."""
    with ExitStack() as undo:
        generations: list[Generation] = []
        for index, request in enumerate(requests):
            leader = generations[index - index % choices] if index % choices else None
            generation = frontend.generate(request, leader)
            undo.callback(generation.close, "refused")
            generations.append(generation)
        undo.pop_all()
    return generations
