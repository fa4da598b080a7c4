"""The `headway` command. Each subcommand imports what it needs when it runs: `--help` and the parent stay light."""

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.core.config import WORKLOADS, Settings, load_settings, problems
from headway.core.errors import HeadwayError

if TYPE_CHECKING:
    from headway.cli.local_talker import LocalTalker
    from headway.cli.remote_talker import RemoteTalker

app = typer.Typer(
    name="headway",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help=__doc__.split(".")[0],
)
bench_app = typer.Typer(no_args_is_help=True, help="Measure the engine.")
app.add_typer(bench_app, name="bench")
models_app = typer.Typer(no_args_is_help=True, help="Look at models.")
app.add_typer(models_app, name="models")

Model = Annotated[
    str | None,
    typer.Argument(help="A .gguf file, a Hugging Face folder or hf:org/name[:file]. Default: SmolLM2-135M-Instruct."),
]
ModelOption = Annotated[str | None, typer.Option("--model", "-m", help="As for serve.")]
Config = Annotated[Path | None, typer.Option("--config", help="A headway.toml.")]
Threads = Annotated[int | None, typer.Option("--threads", help="Compute threads. Default: one per core.")]
Quantize = Annotated[str | None, typer.Option(help="int8, int4 or none: what F32, F16 and BF16 weights become.")]
Workload = Annotated[
    str | None, typer.Option(help="chat, api or bulk: presets of the promise, which every setting overrides.")
]
MaxTokens = Annotated[int, typer.Option("--max-tokens", help="Longest answer, in tokens.")]
Temperature = Annotated[float, typer.Option("--temperature", help="0 always takes the most likely token.")]
Seed = Annotated[int | None, typer.Option("--seed", help="Same seed, same answer. Default: random.")]
TalkModel = Annotated[str | None, typer.Option("--model", "-m", help="As for serve; of --server: a name it lists.")]
Server = Annotated[
    str | None, typer.Option("--server", metavar="URL", help="Any OpenAI-compatible server, instead of an engine here.")
]
ApiKey = Annotated[str | None, typer.Option(envvar="HEADWAY_API_KEY", help="Key to send to --server.")]


@app.command()
def serve(
    model: Model = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 picks a free one.")] = None,
    config: Config = None,
    threads: Threads = None,
    quantize: Quantize = None,
    api_workers: Annotated[int | None, typer.Option(help="API processes.")] = None,
    workload: Workload = None,
    policy: Annotated[str | None, typer.Option(help="continuous, dynamic or static batching.")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="HEADWAY_API_KEY", help="Key that clients must send.")] = None,
) -> None:
    """Serve an OpenAI-compatible API until interrupted."""
    overrides = {
        "model": model,
        "server": {"host": host, "port": port, "api_workers": api_workers, "api_key": api_key},
        "engine": {"threads": threads, "quantize": quantize},
        "batching": {"policy": policy},
    }
    config = config or _found_config()  # a file that goes away later is an error then
    given = _settings(config, overrides, workload)
    from headway.observability.log_queue import start_log
    from headway.serving.supervisor import Supervisor

    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the supervisor takes it as what it means: read again
    settings = given.model_copy(update={"model": str(_fetch(given.model))})
    start_log()

    def reload() -> Settings:
        again = _read(config, overrides, workload)
        return again.model_copy(update={"model": settings.model}) if again.model == given.model else again

    supervisor = Supervisor(
        settings,
        engine_module="headway.serving.engine_process",
        api_module="headway.delivery.api_process",
        reload=reload,
    )
    raise typer.Exit(supervisor.run())


@app.command()
def run(
    prompt: Annotated[str, typer.Argument(help="What to ask. - reads it from standard input.")],
    model: TalkModel = None,
    config: Config = None,
    server: Server = None,
    api_key: ApiKey = None,
    max_tokens: MaxTokens = 1024,
    temperature: Temperature = 0.0,
    seed: Seed = None,
) -> None:
    """Answer one prompt on the terminal, with the engine in this process or with a server."""
    from headway.cli.talk import answer

    text = sys.stdin.read() if prompt == "-" else prompt
    params = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
    with _open_talker(server, api_key, model, config, params) as talker:
        answer(talker, [{"role": "user", "content": text}])


@app.command()
def chat(
    model: TalkModel = None,
    config: Config = None,
    server: Server = None,
    api_key: ApiKey = None,
    system: Annotated[str | None, typer.Option("--system", help="A system message to begin with.")] = None,
    max_tokens: MaxTokens = 1024,
    temperature: Temperature = 0.7,
    seed: Seed = None,
) -> None:
    """Talk to a model. Ctrl-C stops the answer, Ctrl-D or /exit ends, /new begins anew."""
    from headway.cli.talk import converse

    params = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
    with _open_talker(server, api_key, model, config, params) as talker:
        converse(talker, system)


@app.command()
def check(
    model: Model = None,
    config: Config = None,
    threads: Threads = None,
    workload: Workload = None,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Of a typical request.")] = 128,
    output_tokens: Annotated[int, typer.Option(min=1, help="Of a typical request.")] = 128,
    json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Measure for some seconds whether this machine can keep the promise, and for how large a load. Exits with 1 if
    not even one request can be kept it."""
    settings = _settings(config, {"model": model, "engine": {"threads": threads}}, workload)
    from headway.bench.capacity import Shape
    from headway.bench.check import check as examine
    from headway.bench.check_table import print_check

    report = examine(_fetch(settings.model), settings, Shape(prompt_tokens, output_tokens), _progress)
    print_check(report, as_json=json)
    raise typer.Exit(1 if report.problems else 0)


@bench_app.command("step")
def bench_step(
    model: ModelOption = None,
    config: Config = None,
    threads: Threads = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Tokens per second without HTTP, each beside this machine's own limit."""
    settings = _settings(config, {"model": model, "engine": {"threads": threads}})
    from headway.bench.report import print_steps
    from headway.bench.step import measure

    path = _fetch(settings.model)
    report = measure(path, settings, _progress)
    print_steps(report, as_json=json)


@bench_app.command("policies")
def bench_policies(
    model: ModelOption = None,
    config: Config = None,
    threads: Threads = None,
    trace: Annotated[
        Path | None, typer.Option(help="Azure .csv or Mooncake .jsonl, scaled. Default: a built-in trace.")
    ] = None,
    requests: Annotated[int, typer.Option(min=2, help="Requests of the trace to replay.")] = 20,
    rounds: Annotated[int, typer.Option(min=1, help="Times each policy runs at each rate.")] = 3,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.svg|.png", help="Plot throughput against latency.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Continuous, dynamic and static batching on one arrival trace: throughput against p50 and p99 latency."""
    settings = _settings(config, {"model": model, "engine": {"threads": threads}})
    from headway.bench.plot import check_path
    from headway.bench.policies import compare
    from headway.bench.report import plot_policies, print_policies

    if plot is not None:
        check_path(plot)
    comparison = compare(_fetch(settings.model), settings, _progress, trace, requests, rounds)
    print_policies(comparison, as_json=json)
    if plot is not None:
        plot_policies(comparison, plot)


@bench_app.command("load")
def bench_load(
    url: Annotated[str, typer.Option(help="Any OpenAI-compatible server.")] = "http://127.0.0.1:8000",
    model: Annotated[str | None, typer.Option("--model", "-m", help="Default: the first the server lists.")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="HEADWAY_API_KEY", help="Key to send.")] = None,
    endpoint: Annotated[str, typer.Option(help="chat or completions.")] = "chat",
    rate: Annotated[float | None, typer.Option(help="Poisson arrivals per second.")] = None,
    burst: Annotated[
        str | None,
        typer.Option(metavar="F:S[:P]", help="After the warm-up F x rate for S s, then half (again every P s)."),
    ] = None,
    trace: Annotated[
        str | None,
        typer.Option(metavar="FILE[:SPEED]", help="Replay Azure .csv or Mooncake .jsonl; 2 is twice as fast."),
    ] = None,
    length_scale: Annotated[float, typer.Option(help="Multiplies the trace's lengths.")] = 1.0,
    clients: Annotated[int | None, typer.Option(help="Closed loop: each sends when its last has ended.")] = None,
    requests: Annotated[int | None, typer.Option(help="Requests to measure.")] = None,
    duration: Annotated[float | None, typer.Option(help="Seconds to measure. Default: 60, or the trace.")] = None,
    warmup: Annotated[float, typer.Option(help="Seconds before that, not measured.")] = 0.0,
    drain: Annotated[float, typer.Option(help="Seconds for what is under way at the end; then it is cut off.")] = 30.0,
    timeout: Annotated[float, typer.Option(help="Seconds for one try.")] = 120.0,
    input_tokens: Annotated[str, typer.Option(help="A-B, uniform: random words.")] = "64-192",
    output_tokens: Annotated[str, typer.Option(help="A-B, uniform.")] = "64-192",
    prompts: Annotated[Path | None, typer.Option(help="JSON lines with turns or prompt, or a prompt a line.")] = None,
    ignore_eos: Annotated[bool | None, typer.Option(help="Hold the output length. Default: for random words.")] = None,
    extra: Annotated[str, typer.Option(help="JSON object merged into every body.")] = "{}",
    ttft_ms: Annotated[float, typer.Option(help="The promise: first token.")] = 500.0,
    itl_ms: Annotated[float, typer.Option(help="The promise: mean per further token.")] = 50.0,
    retry: Annotated[int, typer.Option(help="Times to wait as told and send a refused request again.")] = 0,
    connections: Annotated[int, typer.Option(help="At most so many at once.")] = 1024,
    seed: Annotated[int, typer.Option(help="Same seed, same arrivals and requests.")] = 0,
    json: Annotated[
        str | None, typer.Option("--json", metavar="FILE|-", help="Write JSON; -: print that only.")
    ] = None,
) -> None:
    """Load any OpenAI-compatible server, open or closed loop, and time it from when each request was due."""
    given = {k: v for k, v in locals().items() if k not in ("ttft_ms", "itl_ms", "json")}
    from headway.bench.load import measure
    from headway.bench.load_options import Options
    from headway.bench.load_stats import Promise
    from headway.bench.load_table import print_load

    promise = Promise(ttft_ms, itl_ms)
    outcome = measure(Options(**given, promise=promise))
    print_load(outcome, promise, json)
    raise typer.Exit(0 if outcome.summary.ok else 1)


@models_app.command("inspect")
def models_inspect(
    model: Model = None,
    config: Config = None,
    threads: Threads = None,
    quantize: Quantize = None,
    quality: Annotated[
        bool, typer.Option("--quality", help="Also measure it against float32: takes a while, and 4 bytes a weight.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Family, sizes, tensor types, context and memory of a model; how near it comes to float32 if asked."""
    settings = _settings(config, {"model": model, "engine": {"threads": threads, "quantize": quantize}})
    from headway.cli.inspection_table import print_inspection
    from headway.model.inspection import inspect_model

    path = _fetch(settings.model)
    found = inspect_model(path, settings.engine)
    measured = None
    if quality:
        from headway.bench.quality import measure

        measured = measure(path, settings.engine, _progress)
    print_inspection(found, measured, as_json=json)


def _settings(config: Path | None, overrides: dict[str, Any], workload: str | None = None) -> Settings:
    """Exits with one line per wrong setting."""
    if workload is not None and workload not in WORKLOADS:
        _complain(f"--workload {workload}: there are {', '.join(WORKLOADS)}")
        raise typer.Exit(2)
    try:
        return _read(config, overrides, workload)
    except (OSError, ValueError) as error:
        for problem in problems(error):
            _complain(problem)
    raise typer.Exit(2)


def _read(config: Path | None, overrides: dict[str, Any], workload: str | None = None) -> Settings:
    """`load_settings`, with what the command line leaves open left out."""
    given = {
        key: {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value
        for key, value in overrides.items()
        if value is not None
    }
    return load_settings(config or _found_config(), given, workload)


def _found_config() -> Path | None:
    """The headway.toml of the current folder, if there is one."""
    path = Path("headway.toml")
    return path if path.is_file() else None


def _fetch(model: str | None) -> Path:
    from headway.model.source import resolve

    return resolve(model)


def _open_talker(
    server: str | None, api_key: str | None, model: str | None, config: Path | None, params: dict[str, Any]
) -> "LocalTalker | RemoteTalker":
    if server is None:
        from headway.cli.local_talker import LocalTalker
        from headway.offline.llm import Params

        return LocalTalker(_settings(config, {"model": model}), Params(**params))
    if config is not None:
        _complain("--config is for an engine in this process; --server has its own")
        raise typer.Exit(2)
    from headway.cli.remote_talker import RemoteTalker

    return RemoteTalker(server, api_key, model, params)


def _progress(line: str) -> None:
    print(f"{line} ...", file=sys.stderr, flush=True)


def _complain(message: str) -> None:
    print(f"headway: {message}", file=sys.stderr)


def main() -> None:
    try:
        app()
    except HeadwayError as error:
        _complain(error.message)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
