"""From OpenAI's request bodies to serving's Requests. Pure; every cap is checked here, before anything is allocated."""

from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from headway.core.config import LimitSettings
from headway.core.errors import InvalidRequest, UnknownModel
from headway.core.sampling import Sampling
from headway.delivery.caller import Caller
from headway.delivery.openai_tools import chat_messages, template_variables, toolset
from headway.delivery.schemas import ChatRequest, Common, CompletionRequest
from headway.serving.request import ChatPrompt, Form, Prompt, Request, TextPrompt, Timing, TokenPrompt
from headway.serving.structured import FIELDS, grammar_source, structured_form

COMPLETION_MAX_TOKENS = 16  # what OpenAI documents for /v1/completions
SEED_MASK = 2**64 - 1  # negative seeds are taken by their bits


@dataclass(frozen=True, slots=True)
class UsageOptions:
    """What a stream shows of its token counts."""

    at_end: bool = False
    continuous: bool = False


def check_model(asked: str | None, served: str) -> None:
    """Raises UnknownModel; a request that names no model means the one there is."""
    if asked is not None and asked != served:
        raise UnknownModel(f"the model {asked[:200]!r} is not served here; {served!r} is", param="model")


def chat_requests(body: ChatRequest, limits: LimitSettings, timing: Timing, caller: Caller) -> list[Request]:
    """One request per choice, all with one prompt. Raises InvalidRequest."""
    if body.top_logprobs is not None and not body.logprobs:
        raise InvalidRequest("top_logprobs needs logprobs: true", param="top_logprobs")
    if body.max_tokens is not None and body.max_completion_tokens not in (None, body.max_tokens):
        raise InvalidRequest("max_tokens and max_completion_tokens differ; send one", param="max_completion_tokens")
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    _cap(logprobs, limits.max_logprobs, "top_logprobs")
    max_tokens = body.max_completion_tokens or body.max_tokens
    prompt = ChatPrompt(
        chat_messages(body.messages),
        tools=toolset(body, limits),
        variables=template_variables(body, limits),
        effort=body.reasoning_effort,
    )
    _cap(body.n, limits.max_choices, "n")
    form = chat_form(body, limits)
    request = _request(body, prompt, max_tokens, logprobs, limits, timing, caller, form)
    return _choices(request, body.n or 1)


def completion_requests(
    body: CompletionRequest, limits: LimitSettings, timing: Timing, caller: Caller
) -> list[Request]:
    """One request per choice that is made, those of one prompt one after the other. Raises InvalidRequest."""
    _cap(body.logprobs, limits.max_logprobs, "logprobs")
    if body.echo and body.logprobs is not None:
        raise InvalidRequest("echo with logprobs is not supported: prompts have no log probabilities", param="echo")
    made, logprobs = choices_made(body), body.logprobs
    if made < (body.n or 1):
        raise InvalidRequest("best_of is less than n", param="best_of")
    if made > (body.n or 1):
        if body.stream:
            raise InvalidRequest("best_of cannot be streamed: the best are known at the end", param="best_of")
        logprobs = logprobs or 0  # to rank them by
    prompts = _prompts(body.prompt, limits.max_prompts)
    _cap(len(prompts) * made, limits.max_choices, "best_of" if body.best_of else "n")
    max_tokens = body.max_tokens or COMPLETION_MAX_TOKENS
    form = _structured(body, limits)
    requests = []
    for prompt in prompts:
        requests += _choices(_request(body, prompt, max_tokens, logprobs, limits, timing, caller, form), made)
    return requests


def choices_made(body: CompletionRequest) -> int:
    """Per prompt; more than n of them are returned with best_of."""
    return body.best_of or body.n or 1


def _choices(request: Request, count: int) -> list[Request]:
    """The same request so many times, with one seed each but not the same random numbers."""
    return [replace(request, sampling=structs.replace(request.sampling, choice=i)) for i in range(count)]


def chat_form(body: ChatRequest, limits: LimitSettings) -> Form | None:
    """What the answer must be, by response_format or structured_outputs. Raises InvalidRequest."""
    given = body.response_format
    form = _structured(body, limits)
    if given is None or given.type == "text":
        wanted = None
    elif given.type == "json_object":
        wanted = Form(grammar_source("json_object", None, limits, "response_format"), "response_format")
    else:
        if given.json_schema is None or given.json_schema.schema_ is None:
            param = "response_format.json_schema" + ("" if given.json_schema is None else ".schema")
            raise InvalidRequest(f"{param} is required", param=param, code="missing_required_parameter")
        param = "response_format.json_schema.schema"
        wanted = Form(grammar_source("json_schema", given.json_schema.schema_, limits, param), param)
    if given is not None and given.type != "json_schema" and given.json_schema is not None:
        param = "response_format.json_schema"
        raise InvalidRequest(f"{param} goes with type json_schema only", param=param)
    if form is not None and wanted is not None:
        raise InvalidRequest("structured_outputs and response_format exclude each other", param="structured_outputs")
    return form or wanted


def _structured(body: Common, limits: LimitSettings) -> Form | None:
    """Raises InvalidRequest."""
    if body.structured_outputs is None:
        return None
    given = body.structured_outputs.model_dump(by_alias=True, include={"json_", *FIELDS})
    return structured_form(given, limits, "structured_outputs")


def usage_options(body: Common) -> UsageOptions:
    """Raises InvalidRequest."""
    options = body.stream_options
    if options is None:
        return UsageOptions()
    if not body.stream:
        raise InvalidRequest("stream_options needs stream: true", param="stream_options")
    continuous = bool(options.continuous_usage_stats)
    return UsageOptions(bool(options.include_usage), continuous and bool(options.include_usage))


def _prompts(prompt: Any, most: int) -> list[Prompt]:
    if isinstance(prompt, str):
        return [TextPrompt(prompt)]
    if isinstance(prompt[0], int):
        return [TokenPrompt(prompt)]
    if len(prompt) > most:
        raise InvalidRequest(f"{len(prompt)} prompts; at most {most} are taken", param="prompt")
    return [TextPrompt(p) if isinstance(p, str) else TokenPrompt(p) for p in prompt]


def _request(
    body: Common,
    prompt: Prompt,
    max_tokens: int | None,
    logprobs: int | None,
    limits: LimitSettings,
    timing: Timing,
    caller: Caller,
    form: Form | None,
) -> Request:
    if max_tokens is not None and (body.min_tokens or 0) > max_tokens:
        raise InvalidRequest(f"min_tokens exceeds max_tokens ({max_tokens})", param="min_tokens")
    _cap(len(body.logit_bias or ()), limits.max_bias_entries, "logit_bias")
    sampling = Sampling(
        max_tokens=0,  # resolved once the prompt's length is known, as is the seed
        temperature=_default(body.temperature, 1.0),
        top_k=max(0, body.top_k or 0),
        top_p=_default(body.top_p, 1.0),
        min_p=_default(body.min_p, 0.0),
        repetition_penalty=_default(body.repetition_penalty, 1.0),
        presence_penalty=_default(body.presence_penalty, 0.0),
        frequency_penalty=_default(body.frequency_penalty, 0.0),
        logit_bias=tuple((body.logit_bias or {}).items()),
        min_tokens=body.min_tokens or 0,
        ignore_eos=bool(body.ignore_eos),
        stop_token_ids=tuple(body.stop_token_ids or ()),
        logprobs=logprobs,
    )
    return Request(
        prompt=prompt,
        sampling=sampling,
        arrival=timing.arrival,
        deadline=timing.deadline,
        max_tokens=max_tokens,
        seed=None if body.seed is None else body.seed & SEED_MASK,
        stop=_stops(body.stop, limits),
        form=form,
        truncate=body.on_timeout == "truncate",
        lane=caller.lane_for(body.service_tier),
        tenant=caller.tenant_for(body.user),
        weight=caller.weight,
        salt=caller.salt,
    )


def _default(value: float | None, default: float) -> float:
    return default if value is None else value


def _stops(stop: Any, limits: LimitSettings) -> tuple[str, ...]:
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(stops) > limits.max_stop_strings:
        raise InvalidRequest(f"{len(stops)} stop strings; at most {limits.max_stop_strings} are taken", param="stop")
    for text in stops:
        if not text:
            raise InvalidRequest("a stop string is empty", param="stop")
        if len(text.encode()) > limits.max_stop_bytes:
            raise InvalidRequest(f"a stop string has more than {limits.max_stop_bytes} bytes", param="stop")
    return stops


def _cap(value: int | None, most: int, param: str) -> None:
    if value is not None and value > most:
        raise InvalidRequest(f"{param}: {value} is more than the {most} that this server takes", param=param)
