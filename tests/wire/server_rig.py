"""A whole server in this process, over real sockets: uvicorn in a thread, the engine on the fake runner in another."""

import socket
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import tokenizers
import uvloop
from openai import OpenAI
from tokenizers import decoders, models, pre_tokenizers

from headway.core.clock import MonotonicClock
from headway.core.config import Settings
from headway.core.events import Load
from headway.core.runner import Batch, Runner
from headway.core.sampling import Sampling
from headway.delivery.api_process import make_server
from headway.model.chat_template import ChatTemplate
from headway.model.fake_runner import FakeRunner, Vocabulary, default_info
from headway.model.grammar import Grammars
from headway.model.text import TextModel
from headway.model.tokenizer import Tokenizer
from headway.serving.address import engine_address
from headway.serving.engine_loop import EngineLoop
from headway.serving.frontend import Frontend
from headway.serving.ipc import EngineSocket

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
SPECIALS = ["<s>", "<pad>", "</s>"]
END_ID = 2
PRINTABLE = [bytes([b]) for b in range(0x20, 0x7F)]
EMOJI = [bytes([b]) for b in "\N{GRINNING FACE}".encode()]  # a character in four tokens, and stray bytes


def make_text(context: int = 512, template: str = TEMPLATE, extra_specials: Sequence[str] = ()) -> TextModel:
    """One token per byte: three special ones, printable ASCII, an emoji's bytes, then the other bytes."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    spelled = {_byte_of(char): char for char in alphabet}
    rest = [b for b in sorted(spelled) if b not in PRINTABLE and b not in EMOJI]
    names = SPECIALS + [spelled[b] for b in [*PRINTABLE, *EMOJI, *rest]] + [*extra_specials]
    backend = tokenizers.Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([*SPECIALS, *extra_specials])
    tokenizer = Tokenizer(backend, 0, (END_ID,))
    chat_template = ChatTemplate(template, {"bos_token": "<s>", "eos_token": "</s>"})
    return TextModel("tiny", context, len(names), tokenizer, chat_template, (END_ID,))


def _byte_of(char: str) -> bytes:
    code = ord(char)
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return bytes([code if code in printable else others[code - 0x100]])


@dataclass(frozen=True)
class Script(Vocabulary):
    """A model that says what it is told to, as far as a grammar lets it."""

    script: Callable[[list[int]], list[int]] = list

    def next_token(
        self, context: "array[int]", sampling: Sampling, prompt_length: int, allowed: Sequence[int] | None = None
    ) -> int:
        answer = self.script(list(context[:prompt_length]))
        token = answer[min(len(context) - prompt_length, len(answer) - 1)]
        good = allowed is None or token in allowed
        return token if good else super().next_token(context, sampling, prompt_length, allowed)


def make_runner(
    vocab_size: int,
    *,
    step_s: Callable[[Batch], float] | None = None,
    end_probability: float = 0.0,
    context: int = 512,
    blocks: int = 256,
    script: Callable[[list[int]], list[int]] | None = None,
    grammars: Callable[[], Grammars] | None = None,
    slots: int = 64,
) -> FakeRunner:
    """`script`: the whole answer to a prompt's ids; without one the oracle speaks."""
    sizes = {"slots": slots, "blocks": max(blocks, 4 * slots), "max_batch_tokens": max(512, 2 * slots)}
    info = default_info(vocab_size=vocab_size, context=context, end_ids=(END_ID,), **sizes)
    tokens = (len(SPECIALS), len(SPECIALS) + len(PRINTABLE) + len(EMOJI) - 1)
    runner = FakeRunner(info, step_time=step_s, tokens=tokens, end_probability=end_probability, grammars=grammars)
    if script is not None:
        oracle = runner.vocabulary
        runner.vocabulary = Script(oracle.first, oracle.last, oracle.end_ids, oracle.end_probability, script)
    return runner


@dataclass
class Rig:
    url: str
    settings: Settings
    frontend: Frontend
    text: TextModel
    http: httpx.Client
    openai: OpenAI
    engine: EngineLoop
    pace: list[float] = field(default_factory=lambda: [0.0])  # seconds per step, changeable

    def load(self) -> Load:
        load = self.frontend.load
        assert load is not None
        return load

    def wait(self, condition: Callable[[Load], bool], seconds: float = 5.0) -> Load:
        """The first load for which `condition` holds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            load = self.frontend.load
            if load is not None and condition(load):
                return load
            time.sleep(0.005)
        raise AssertionError(f"not within {seconds} s: {self.frontend.load}")

    def wait_idle(self) -> Load:
        idle = self.wait(lambda load: not load.running and not load.waiting and load.free_blocks == load.total_blocks)
        end = time.monotonic() + 2
        while self.frontend.live and time.monotonic() < end:
            time.sleep(0.005)
        assert self.frontend.live == 0
        return idle


@contextmanager
def make_rig(
    *,
    start_runner: Callable[[Rig], None] = lambda rig: None,
    pace: float = 0.0,
    runner: dict[str, Any] | None = None,
    wait_ready: bool = True,
    send_buffer: int | None = None,
    template: str = TEMPLATE,
    extra_specials: Sequence[str] = (),
    answers: Callable[[str], str] | None = None,
    **sections: dict[str, Any],
) -> Iterator[Rig]:
    """`pace`: seconds per step; `runner`: for make_runner; `answers`: what the model says to a prompt; other keywords
    are sections of the settings."""
    settings = Settings(**sections)  # type: ignore[arg-type]
    options = {"context": 512, **(runner or {})}
    text = make_text(options["context"], template, extra_specials)
    if answers is not None:
        encode, decode = text.tokenizer.encode, text.tokenizer.decode
        options["script"] = lambda prompt: [*encode(answers(decode(prompt)), add_special=False), END_ID]
    options.setdefault("grammars", lambda: Grammars(text.tokenizer, text.vocab_size, text.end_ids))
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    if send_buffer is not None:  # of every connection
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with engine_address() as address:
        frontend = Frontend(text, settings, address)
        engine = EngineLoop(EngineSocket(address), settings, epoch=1, clock=MonotonicClock())
        rig = Rig(
            url=url,
            settings=settings,
            frontend=frontend,
            text=text,
            http=httpx.Client(base_url=url, timeout=20),
            openai=OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=20),
            engine=engine,
            pace=[pace],
        )

        def load_runner() -> Runner:
            start_runner(rig)
            return make_runner(text.vocab_size, step_s=lambda batch: rig.pace[0], **options)

        server = make_server(frontend, settings)
        engine_thread = threading.Thread(target=engine.run, args=(load_runner,), name="engine")
        api_thread = threading.Thread(target=uvloop.run, args=(server.serve(sockets=[listener]),), name="api")
        engine_thread.start()
        api_thread.start()
        try:
            if wait_ready:
                end = time.monotonic() + 10
                while not server.started or frontend.trouble() is not None:
                    assert time.monotonic() < end, frontend.trouble()
                    time.sleep(0.005)
            yield rig
        finally:
            rig.openai.close()
            rig.http.close()
            server.should_exit = True
            api_thread.join(10)
            engine.stop()
            engine_thread.join(10)
            listener.close()
            engine.close()


def sse(text: str) -> list[str]:
    """The data of each event of a body."""
    return [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
