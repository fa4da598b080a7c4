"""A request as the serving layer sees it: no wire format, no token ids yet."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headway.core.lane import Lane
from headway.core.sampling import Sampling


@dataclass(frozen=True, slots=True)
class Toolset:
    """The functions a request offers to the model."""

    specs: list[dict[str, Any]]  # as OpenAI writes them; all are shown to the model
    names: frozenset[str]  # those it may call
    strict: frozenset[str]  # those whose schema holds also where no call must be made
    required: bool  # it must call one
    parallel: bool  # it may call several at once
    size: int  # characters of `specs`

    @property
    def callable(self) -> list[dict[str, Any]]:
        """The function objects of `names`."""
        return [spec["function"] for spec in self.specs if spec["function"]["name"] in self.names]


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """Messages for the model's chat template."""

    messages: list[dict[str, Any]]
    tools: Toolset | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)  # chat_template_kwargs
    effort: str | None = None  # OpenAI's reasoning_effort

    @property
    def size(self) -> int:
        """Characters, roughly; for estimates made before tokenising."""
        texts = sum(len(m["content"]) for m in self.messages if isinstance(m.get("content"), str))
        return texts + (self.tools.size if self.tools is not None else 0)


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """Plain text, with the tokenizer's own special tokens around it unless told otherwise."""

    text: str
    add_special_tokens: bool = True

    @property
    def size(self) -> int:
        return len(self.text)


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """Token ids, taken as they are."""

    ids: list[int]

    @property
    def size(self) -> int:
        return 4 * len(self.ids)


Prompt = ChatPrompt | TextPrompt | TokenPrompt


@dataclass(frozen=True, slots=True)
class Timing:
    """Clock seconds: when a request came in, and by when it must have ended."""

    arrival: float
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class Form:
    """What the output must be: a grammar's source (see serving/structured), and the field that asked for it."""

    source: str
    param: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One sequence to generate. `sampling.max_tokens`, `sampling.seed` and `sampling.grammar` are placeholders:
    `max_tokens` and `seed` here decide, since their defaults depend on the prompt's length and on chance, and so
    does `form`."""

    prompt: Prompt
    sampling: Sampling
    arrival: float  # Clock seconds of the HTTP arrival
    max_tokens: int | None = None  # None: what fits the context
    seed: int | None = None  # None: random
    stop: tuple[str, ...] = ()
    form: Form | None = None  # None: any text
    deadline: float | None = None  # Clock seconds
    truncate: bool = False  # at the deadline: an end with what there is, not an error
    lane: Lane = Lane.DEFAULT
    tenant: str = ""
    weight: float = 1.0  # of the tenant
    salt: bytes = b""
