"""Settings: frozen, validated once, from CLI > HEADWAY_* > headway.toml > defaults (decision 9)."""

import os
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from headway.core.errors import InvalidRequest


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)


class ServerSettings(Section):
    """How the API is reached."""

    host: str = "127.0.0.1"
    port: int = Field(8000, ge=0, le=65535)
    api_workers: int = Field(1, ge=1, le=64)
    api_key: str | None = Field(None, min_length=1)  # None: no key is asked for, unless there are [[keys]]
    admin_key: str | None = Field(None, min_length=1)  # for /admin; None: there is no /admin
    model_name: str | None = None  # name in /v1/models; None: from the model's files
    max_body_bytes: int = Field(8 << 20, ge=1024)
    header_wait_s: float = Field(10.0, gt=0)  # response headers wait at most so long for the first planned step
    keep_alive_s: float = Field(15.0, gt=0)  # silence on a stream that the comment ": keep-alive" breaks
    head_s: float = Field(10.0, gt=0)  # a request's head must be whole so long after its first byte, or the connection
    body_s: float = Field(60.0, gt=0)  # and its body so long after the head
    stall_s: float = Field(60.0, gt=0)  # a connection that is full, and whose reader takes nothing for so long, is cut
    max_connections: int = Field(20_000, ge=1)  # open at once, in each API worker; more get 503
    idle_connection_s: int = Field(120, ge=1)  # longer than common proxies' 60-90 s
    drain_s: float = Field(30.0, ge=0)  # what running requests get to finish in at shutdown
    start_s: float = Field(300.0, gt=0)  # the engine must be ready within this
    hang_s: float = Field(2.0, ge=0.1)  # without a sign of life, beside 20 times a step's time, an engine is replaced
    journal_mb: int = Field(64, ge=1)  # memory for events of resumable streams, in each API worker
    journal_s: float = Field(300.0, gt=0)  # they are kept for so long after a stream's end
    store_path: Path | None = None  # of the file with the stored responses; None: in the user's data folder
    store_days: float = Field(30.0, ge=0)  # they are kept for so long; 0: none is
    store_mb: int = Field(1024, ge=1)  # of the file; the oldest make room
    stream_buffer: int = Field(4096, ge=16)  # events a slow reader may lag behind before its stream is cancelled


class EngineSettings(Section):
    """The engine's resources, fixed at start."""

    threads: int = Field(default_factory=lambda: len(os.sched_getaffinity(0)), ge=1, le=1024)
    context: int | None = Field(None, ge=16)  # None: the model's own
    kv_memory_mb: int = Field(1024, ge=1)
    kv_type: Literal["int8", "f16"] = "int8"  # how keys and values are kept: int8 needs half the memory
    max_sequences: int = Field(256, ge=1, le=4096)  # sequences running at once
    max_step_tokens: int = Field(512, ge=1, le=65536)  # tokens computed in one step: decodes, then prefill chunks
    prefix_cache: bool = True
    quantize: Literal["none", "int8", "int4"] = "none"  # what F32, F16 and BF16 matrices become at load
    weights_cache: bool = True  # packed weights are kept in the user's cache folder, for the next start


class BatchingSettings(Section):
    """Who shares a step. `continuous` joins at every step; `dynamic` gathers up to `max_batch` for `window_ms` and
    `static` waits for exactly `max_batch` (or `max_wait_ms`); both then run the batch to its end."""

    policy: Literal["continuous", "dynamic", "static"] = "continuous"
    max_batch: int = Field(16, ge=1)
    window_ms: float = Field(50.0, ge=0)
    max_wait_ms: float = Field(2000.0, ge=0)


class PromiseSettings(Section):
    """What the operator promises to those who are being served."""

    # To the first token from HTTP arrival, plus twice the prompt's own unloaded prefill time. Where it is given, the
    # promise binds: what cannot be served inside it, or would push others beyond itl_ms, is refused with 429 and the
    # time to come back. 0: refuse nothing for the sake of time.
    ttft_ms: float = Field(0.0, ge=0)

    # Between two tokens of a stream; 0: nothing. Prompts beside running streams are computed in pieces sized for it.
    itl_ms: float = Field(50.0, ge=0)
    # The longest a request may take, from its HTTP arrival, queue included; 0: as long as it takes. A request can ask
    # for less (`timeout`, X-Request-Timeout). Then it ends with `deadline_exceeded`.
    total_s: float = Field(0.0, ge=0)
    # The longest wait for the first step; 0: no limit. Then it is refused with 429, having cost nothing.
    queue_s: float = Field(0.0, ge=0)

    # The longest a stream that has begun may be without its next token; 0: no limit. Then it alone ends, with an error.
    token_s: float = Field(60.0, ge=0)
    # What becomes of a resumable stream whose last reader goes away in the middle: it goes on for `resume_s`, or to its
    # end, or ends at once. One that has not asked for stream_options.resumable always ends at once.
    on_stream_drop: Literal["resume", "finish", "cancel"] = "resume"
    # How long a resumable stream that nobody reads goes on, with `resume`.
    resume_s: float = Field(30.0, ge=0)

    @property
    def itl_s(self) -> float | None:
        return self.itl_ms / 1e3 or None


class QueueSettings(Section):
    """Bounds of the waiting queue; past any of them a request is refused with 429 and Retry-After."""

    max_requests: int = Field(1024, ge=0)
    max_tokens: int = Field(1_000_000, ge=0)  # prompt tokens waiting


class LaneSettings(Section):
    """How lanes and tenants share the engine. A request's lane is its `service_tier`: priority before default before
    flex, which fills what the two leave; within a lane tenants share by weight."""

    # Of a request that names no service_tier, where its key names none either.
    default: Literal["priority", "default", "flex"] = "default"
    # Of the computed tokens, what a lane with work gets at least while those before it could use everything; the oldest
    # of its requests that need no more than a quarter of the KV cache.
    least_share: float = Field(0.02, ge=0, le=0.3)
    # A prompt with more tokens is long: it gets this share of the time for prompts while shorter ones wait.
    long_prompt_tokens: int = Field(2048, ge=1)
    long_prompt_share: float = Field(0.5, gt=0, lt=1)
    # Waiting counts too: a second in the queue weighs as much as so many tokens of service not had.
    aging_tokens: float = Field(10.0, ge=0)


class KeySettings(Section):
    """An API key, [[keys]] in headway.toml: whose it is, its lane (a request may ask for a lower one), its weight."""

    key: str = Field(min_length=1)
    tenant: str = Field(min_length=1, max_length=64)
    lane: Literal["priority", "default", "flex"] = "default"
    weight: float = Field(1.0, gt=0, le=1000)


class TuningSettings(Section):
    """Self-tuning: how many sequences run and how much of the promised gap a step plans for follow what is measured.
    Upper bounds are engine.max_sequences and engine.max_step_tokens."""

    enabled: bool = True
    min_sequences: int = Field(4, ge=1)
    min_chunk_tokens: int = Field(16, ge=1)


class LimitSettings(Section):
    """Caps on what one request may ask for, checked before anything is allocated."""

    max_stop_strings: int = Field(16, ge=0)
    max_stop_bytes: int = Field(1024, ge=1)
    max_logprobs: int = Field(20, ge=0)
    max_bias_entries: int = Field(1024, ge=0)
    max_prompts: int = Field(64, ge=1)  # prompts in one completions request
    max_choices: int = Field(128, ge=1)  # answers that one request may have made: prompts times n or best_of
    max_tools: int = Field(128, ge=0)
    max_tool_bytes: int = Field(65_536, ge=1)  # of one tool: name, description and schema as JSON
    max_template_bytes: int = Field(16_384, ge=2)  # of chat_template_kwargs as JSON
    # Of a schema or grammar that output is to follow; these bound the time it takes to compile (docs/structured.md).
    max_grammar_bytes: int = Field(65_536, ge=256)
    max_schema_depth: int = Field(64, ge=4, le=120)  # levels of objects and lists
    max_grammar_s: float = Field(1.0, gt=0)  # of a processor's time, to compile it


class Settings(BaseModel):
    """All settings of one Headway; sections nest as [server], [engine], ... in headway.toml and as
    HEADWAY_SERVER__PORT in the environment."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        hide_input_in_errors=True,  # there are keys in it
    )

    model: str | None = None  # None: the default model
    server: ServerSettings = ServerSettings()
    engine: EngineSettings = EngineSettings()
    promise: PromiseSettings = PromiseSettings()
    batching: BatchingSettings = BatchingSettings()
    queue: QueueSettings = QueueSettings()
    lanes: LaneSettings = LaneSettings()
    tuning: TuningSettings = TuningSettings()
    keys: tuple[KeySettings, ...] = ()
    limits: LimitSettings = LimitSettings()

    @field_validator("keys")
    @classmethod
    def _check_keys(cls, keys: tuple[KeySettings, ...], info: ValidationInfo) -> tuple[KeySettings, ...]:
        """One key means one caller, and one tenant has one weight. The message names no key: it may be logged."""
        server = info.data.get("server")
        tenants = {server.api_key: "server.api_key"} if server is not None else {}
        weights: dict[str, float] = {}
        for entry in keys:
            here = f"tenant {entry.tenant!r}"
            if entry.key in tenants:
                what = {"one": tenants[entry.key], "other": here}
                raise PydanticCustomError("duplicate_key", "the same key is given for {one} and {other}", what)
            tenants[entry.key] = here
            if (weight := weights.setdefault(entry.tenant, entry.weight)) != entry.weight:
                what = {"tenant": here, "one": str(weight), "other": str(entry.weight)}
                raise PydanticCustomError("two_weights", "{tenant} has two weights, {one} and {other}", what)
        return keys


# The sections that can change while the server runs; the others need a restart.
LIVE = ("promise", "batching", "queue", "lanes", "tuning", "keys", "limits")


def with_changes(settings: Settings, changes: dict[str, Any]) -> Settings:
    """`settings` with the named values of live sections replaced; `keys` is replaced whole.

    Raises InvalidRequest for a section that needs a restart, and pydantic.ValidationError naming each wrong entry.
    """
    for name in changes:
        if name in Settings.model_fields and name not in LIVE:
            raise InvalidRequest(f"{name} cannot be changed without a restart", param=name, code="needs_restart")
    merged = settings.model_dump()
    for name, given in changes.items():
        partial = isinstance(given, dict) and isinstance(merged.get(name), dict)
        merged[name] = {**merged[name], **given} if partial else given
    return Settings(**merged)


def problems(error: Exception) -> list[str]:
    """What is wrong with the settings, a line each, from what `load_settings` raises. Names entries, shows no value."""
    if isinstance(error, ValidationError):
        faults = error.errors(include_url=False, include_input=False)
        return [f"setting {'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults]
    return [f"config file: {error}"]


# Shapes of use; every value can be overridden by the file, the environment and the command line.
WORKLOADS: dict[str, dict[str, Any]] = {
    # A human watches: the first token soon, an even pace, and a quick no rather than a slow yes.
    "chat": {
        "promise": {"ttft_ms": 500.0, "itl_ms": 50.0, "total_s": 120.0, "queue_s": 5.0},
        "lanes": {"default": "default"},
        "batching": {"policy": "continuous"},
    },
    # A program needs the whole result: the pace within it matters to nobody.
    "api": {
        "promise": {"itl_ms": 200.0, "total_s": 120.0, "queue_s": 30.0},
        "lanes": {"default": "default"},
        "batching": {"policy": "continuous"},
    },
    # Nobody waits: throughput is all, and who says service_tier "default" goes before the rest.
    "bulk": {
        "promise": {"itl_ms": 0.0, "token_s": 0.0},
        "lanes": {"default": "flex"},
        "batching": {"policy": "continuous"},
        "queue": {"max_requests": 100_000, "max_tokens": 100_000_000},
    },
}


def load_settings(config: Path | None, overrides: dict[str, object], workload: str | None = None) -> Settings:
    """Settings from the command line's `overrides` (nested like the sections), the environment, `config` and the preset
    of a `workload` (KeyError if there is none of that name).

    Raises pydantic.ValidationError naming each wrong entry, and OSError or tomllib.TOMLDecodeError for the file.
    """

    # Late: children get their settings from the parent, and start sooner without it.
    from pydantic_settings import (
        BaseSettings,
        InitSettingsSource,
        PydanticBaseSettingsSource,
        SettingsConfigDict,
        TomlConfigSettingsSource,
    )

    preset = WORKLOADS[workload] if workload else {}
    if config is not None and not config.is_file():
        raise FileNotFoundError(f"no such config file: {config}")

    class FromSources(BaseSettings, Settings):
        model_config = SettingsConfigDict(env_prefix="HEADWAY_", env_nested_delimiter="__", toml_file=config)

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            toml = (TomlConfigSettingsSource(settings_cls),) if config else ()
            return (init_settings, env_settings, *toml, InitSettingsSource(settings_cls, init_kwargs=preset))

    return FromSources(**overrides)  # type: ignore[arg-type]
