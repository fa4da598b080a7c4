"""The runner over the native C++ core: int8-dot and bf16 kernels over a paged KV pool."""

import time
from array import array
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import headway._native as _native
from headway.core.config import EngineSettings
from headway.core.errors import HeadwayError, ModelError
from headway.core.events import TokenLogprobs
from headway.core.runner import Batch, Opening, RunnerInfo, Sampled, StepResult, Work
from headway.model.end_tokens import end_ids_of
from headway.model.grammar import Grammars
from headway.model.grammar_slots import GrammarSlots
from headway.model.kv_blocks import KV_TYPES, LayerGroups, layer_bytes, layer_groups, span_bytes
from headway.model.spec import Architecture, Checkpoint, ModelSpec
from headway.model.step_thread import StepThread
from headway.model.tokenizer import load_tokenizer
from headway.model.weight_loader import load_weights

# A step waits so long for the grammars of newcomers to be compiled; then their first draw is put off.
_COMPILE_PATIENCE_S = 0.005
_MASK_PATIENCE_S = 0.01  # and so long, once all else is computed, for masks
_ANY_LENGTH = 2**31 - 1
_ACTIVATIONS = {
    "silu": _native.Activation.SILU,
    "gelu": _native.Activation.GELU,
    "clamped_silu": _native.Activation.CLAMPED_SILU,
}


class NativeRunner:
    """Computes one step at a time on its own thread, with the GIL released.

    Invariant (decision 2): a row's bits depend on neither batch, chunking, cache nor threads.
    """

    def __init__(self, checkpoint: Checkpoint, architecture: Architecture, settings: EngineSettings) -> None:
        spec = architecture.spec(checkpoint, settings.context)
        context = self._context(spec, settings)
        groups = layer_groups(spec, context)
        limits = self._limits(spec, settings, context, groups)
        try:
            # No sequence is longer than the pool; what the core makes room for must not grow with what a file says.
            longest = min(context, limits.blocks // len(groups.layers) * _native.BLOCK)
            self._core = _native.Core(self._config(spec, longest, groups), limits)
            digest = load_weights(self._core, checkpoint, architecture, spec, settings)
            self._core.finish()
        except (ValueError, MemoryError, RuntimeError) as error:
            raise ModelError(f"{checkpoint.path}: {error}") from error
        self._info = RunnerInfo(
            fingerprint=f"hw-{digest}-native-{self._core.isa}-{settings.kv_type}",
            invariant=True,
            vocab_size=spec.vocab,
            context=longest if any(groups.windows) else context,  # or it could outgrow the pool
            block_size=_native.BLOCK,
            blocks=limits.blocks,
            slots=limits.slots,
            max_batch_tokens=limits.max_tokens,
            end_ids=tuple(i for i in end_ids_of(checkpoint) if i < spec.vocab),
            windows=groups.windows,
            layer_macs=spec.layer_macs,
            head_macs=spec.head_macs,
            bytes_per_token=self._bytes_per_token(spec),
            kv_bytes=span_bytes(spec, settings.kv_type),
        )
        self._thread = StepThread(self._compute, "native-step")
        self._submitted = False
        self._with_logprobs: set[int] = set()  # slots whose sequences want them
        threads = max(1, settings.threads // 2)  # they compute beside the others
        self._grammars = GrammarSlots(partial(self._load_grammars, checkpoint.path), limits.slots, spec.vocab, threads)

    @property
    def info(self) -> RunnerInfo:
        return self._info

    def submit(self, batch: Batch) -> None:
        if self._submitted:
            raise RuntimeError("submit() before the former step was collected")
        self._submitted = True
        self._thread.start(batch)

    def collect(self) -> StepResult:
        """Whoever is interrupted while waiting can call again: the step goes on, and its result stays."""
        if not self._submitted:
            raise RuntimeError("collect() without submit()")
        result = self._thread.result()
        self._submitted = False
        return result

    def close(self) -> None:
        """Frees the weights and the KV pool; nothing may be called afterwards."""
        self._thread.close()
        self._grammars.close()
        del self._core

    def logits(self, sample: int) -> NDArray[np.float32]:
        """Raw logits of the last step's `sample`-th drawn row (a copy), if the step had <= `_native.LOGIT_ROWS`."""
        return self._core.logits(sample).copy()

    def copy_block(self, source: int, target: int) -> None:
        """Makes KV block `target` what `source` is. Not while a step computes."""
        if self._submitted:
            raise RuntimeError("copy_block() while a step computes")
        self._core.copy_block(source, target)

    def _compute(self, batch: Batch) -> StepResult:
        refused: dict[int, str] = {}  # slots whose opening failed: their sequences fail, the step does not
        for opening in batch.openings:
            try:
                self._open(opening)
            except (ValueError, TypeError, OverflowError) as error:
                refused[opening.slot] = f"the native core refused the request: {error}"
        masked, put_off = self._constrained(batch, refused)
        todo = [w for w in batch.work if w.slot not in refused] if refused else batch.work
        header, tokens, tables = array("i"), array("I"), array("I")
        for work in todo:
            count = len(work.tokens)
            header.extend((work.slot, work.start, count, work.sample and work.slot not in put_off))
            tokens.extend(work.tokens)
            blocks = -(-(work.start + count) // _native.BLOCK)
            for table in work.tables:
                tables.extend(table if len(table) == blocks else table[:blocks])
        self._thread.leave()
        start = time.perf_counter()
        if masked:
            self._grammars.fill(masked)
            collect = partial(self._grammars.collect, masked, _MASK_PATIENCE_S)
            drawn = iter(self._core.step(header, tokens, tables, self._grammars.masks, collect))
        else:
            drawn = iter(self._core.step(header, tokens, tables))
        elapsed = time.perf_counter() - start
        sampled: list[Sampled | None] = []
        for work in batch.work:
            if work.slot in refused:
                sampled.append(Sampled(0, error=refused[work.slot]))
                continue
            result = next(drawn)
            sampled.append(None if work.slot in put_off else self._sampled(work, result))
        return StepResult(sampled, elapsed)

    def _constrained(self, batch: Batch, refused: dict[int, str]) -> tuple[list[int], set[int]]:
        """Slots that are to draw by a grammar, and those of them whose grammar is not compiled yet. Adds to `refused`
        those whose grammar cannot be."""
        masked: list[int] = []
        put_off: set[int] = set()
        deadline = time.perf_counter() + _COMPILE_PATIENCE_S
        for work in batch.work:
            if not work.sample or not self._grammars.has(work.slot) or work.slot in refused:
                continue
            self._thread.leave()
            try:
                if self._grammars.ready(work.slot, max(0.0, deadline - time.perf_counter())):
                    masked.append(work.slot)
                else:
                    put_off.add(work.slot)
            except HeadwayError as error:
                refused[work.slot] = error.message
        return masked, put_off

    def _sampled(self, work: Work, drawn: _native.Sampled) -> Sampled | None:
        if not drawn.finite:
            positions = f"{work.start} to {work.start + len(work.tokens) - 1}"
            return Sampled(0, error=f"the model gave a value that is not finite at positions {positions}")
        if not work.sample:
            return None
        forced: tuple[int, ...] = ()
        if self._grammars.has(work.slot):
            if self._grammars.late(work.slot):
                return None
            if not drawn.allowed or self._grammars.problem(work.slot):
                return Sampled(0, error=self._grammars.problem(work.slot) or "the grammar allows no token here")
            forced = self._grammars.take(work.slot, drawn.token)
            if forced:
                self._core.extend(work.slot, array("I", forced))
        if work.slot in self._with_logprobs:
            return Sampled(drawn.token, TokenLogprobs(drawn.logprob, drawn.top))
        return Sampled(drawn.token, forced=forced) if forced else Sampled(drawn.token)

    def _open(self, opening: Opening) -> None:
        given, native = opening.sampling, _native.Sampling()
        for name in (
            "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
            "min_tokens", "choice",
        ):  # fmt: skip
            setattr(native, name, getattr(given, name))
        native.seed = given.seed & 0xFFFFFFFFFFFFFFFF
        native.logprobs = -1 if given.logprobs is None else given.logprobs
        native.logit_bias = list(given.logit_bias)
        native.end_ids = sorted({*self._info.end_ids, *given.stop_token_ids})
        native.masked = given.grammar is not None
        if native.masked and given.ignore_eos:
            native.min_tokens = _ANY_LENGTH  # an end comes only where nothing else may
        self._core.open(opening.slot, native, opening.known, opening.prompt_length)
        if given.logprobs is None:
            self._with_logprobs.discard(opening.slot)
        else:
            self._with_logprobs.add(opening.slot)
        # Each token has its own log probability; what is forced was never weighed.
        output = opening.known[opening.prompt_length :]
        self._grammars.open(opening.slot, given.grammar, output, jump=given.logprobs is None)

    def _load_grammars(self, path: Path) -> Grammars:
        return Grammars(load_tokenizer(path), self._info.vocab_size, self._info.end_ids)

    def _bytes_per_token(self, spec: ModelSpec) -> int:
        """Weights read for one row: of experts the active ones; an embedding that is not the head is looked up."""
        read = self._core.weight_bytes - (0 if spec.tied else self._core.embedding_bytes)
        if spec.experts:
            read -= self._core.expert_bytes * (spec.experts.count - spec.experts.active) // spec.experts.count
        return read

    @staticmethod
    def _context(spec: ModelSpec, settings: EngineSettings) -> int:
        if settings.context is not None and settings.context > spec.context:
            raise ModelError(
                f"engine.context = {settings.context} exceeds the model's context of {spec.context} tokens"
            )
        return settings.context or spec.context

    @staticmethod
    def _limits(spec: ModelSpec, settings: EngineSettings, context: int, groups: LayerGroups) -> _native.Limits:
        limits = _native.Limits()
        limits.kv = KV_TYPES[settings.kv_type]
        per_block = layer_bytes(spec, settings.kv_type) * groups.size * len(groups.layers)
        limits.threads = settings.threads
        limits.slots = settings.max_sequences
        limits.max_tokens = max(settings.max_step_tokens, 1)
        wanted = settings.max_sequences * -(-context // _native.BLOCK)  # more could never be used
        blocks = min(wanted, (settings.kv_memory_mb << 20) // per_block)
        if blocks < 1:
            raise ModelError(
                f"engine.kv_memory_mb = {settings.kv_memory_mb} holds not even one block of {per_block} bytes"
            )
        limits.blocks = blocks * len(groups.layers)
        return limits

    @staticmethod
    def _config(spec: ModelSpec, context: int, groups: LayerGroups) -> _native.Config:
        config = _native.Config()
        for name in (
            "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "norm_eps", "rope_scale", "ropes",
            "windows", "tied",
        ):  # fmt: skip
            setattr(config, name, getattr(spec, name))
        config.context, config.activation = context, _ACTIVATIONS[spec.activation]
        config.groups = [list(layers) for layers in groups.layers]
        config.inv_freq = spec.inv_freq.tolist()
        config.attention_scale, config.embed_scale = spec.scales.attention, spec.scales.embedding
        config.residual_scale = spec.scales.residual
        config.attention_cap, config.logit_cap = spec.scales.attention_cap, spec.scales.logit_cap
        if spec.experts:
            config.experts, config.active_experts = spec.experts.count, spec.experts.active
            config.expert_ffn, config.renormalise = spec.experts.ffn, spec.experts.renormalise
        return config
