"""Builds the tokenizer that a GGUF file describes in its `tokenizer.ggml.*` entries."""

from collections.abc import Sequence

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, processors

from headway.core.errors import ModelError
from headway.model.end_tokens import CONTROL
from headway.model.fields import Fields
from headway.model.pre_tokenizers import SPLITS, Split
from headway.model.spec import Checkpoint

_KEY = "tokenizer.ggml."
_UNKNOWN, _USER_DEFINED = 2, 4  # token types (llama.cpp's llama_token_type)


def build_tokenizer(checkpoint: Checkpoint) -> tokenizers.Tokenizer:
    """ModelError if the file has no tokenizer, or one of a kind Headway does not know."""
    fields = Fields(checkpoint.path, checkpoint.metadata, _KEY)
    if "model" not in fields or "tokens" not in fields:
        raise ModelError(f"model {checkpoint.path} has no tokenizer ({_KEY}tokens); a GGUF file needs one")
    kind, tokens = fields.text("model"), fields.texts("tokens")
    if kind == "gpt2":
        return _byte_level(checkpoint, fields, tokens)
    if kind == "llama":
        return _sentencepiece(checkpoint, fields, tokens)
    raise fields.fail(f"model {kind} is not supported (gpt2 and llama are)")


def _byte_level(checkpoint: Checkpoint, fields: Fields, tokens: list[str]) -> tokenizers.Tokenizer:
    name = fields.text("pre", "default")
    split = SPLITS.get(name)
    if split is None:
        raise fields.fail(f"pre {name} is not supported ({', '.join(SPLITS)} are)")
    merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in fields.texts("merges"))]
    tokenizer = _tokenizer(fields, tokens, merges, ignore_merges=split.whole_words)
    tokenizer.pre_tokenizer = split.build()
    tokenizer.decoder = decoders.ByteLevel()
    return _finished(checkpoint, fields, tokens, tokenizer, split)


def _sentencepiece(checkpoint: Checkpoint, fields: Fields, tokens: list[str]) -> tokenizers.Tokenizer:
    scores = checkpoint.metadata.get(_KEY + "scores")
    if not isinstance(scores, list) or len(scores) != len(tokens):
        raise fields.fail("scores must be given for every token")
    unknown = tokens[fields.integer("unknown_token_id", 0)]
    merges = merges_of_scores(tokens, scores)
    tokenizer = _tokenizer(fields, tokens, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    spaces: list[normalizers.Normalizer] = [normalizers.Replace(" ", "▁")]
    if fields.flag("add_space_prefix", True):
        spaces.insert(0, normalizers.Prepend("▁"))
    tokenizer.normalizer = normalizers.Sequence(spaces)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return _finished(checkpoint, fields, tokens, tokenizer, Split((), bos=True))


def merges_of_scores(tokens: Sequence[str], scores: Sequence[float]) -> list[tuple[str, str]]:
    """SentencePiece merges the pair whose union scores highest; BPE wants the pairs in that order. Of pairs with equal
    unions the order is that of transformers' converter, so that the two agree."""
    ids = {token: index for index, token in enumerate(tokens)}
    ranked: list[tuple[tuple[float, int, int], int, int, str, str]] = []
    for token, score in zip(tokens, scores, strict=True):
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ids and right in ids:
                ranked.append(((-score, -len(left), -len(right)), ids[left], ids[right], left, right))
    ranked.sort(key=lambda merge: merge[0])
    return [(left, right) for *_, left, right in ranked]


def _tokenizer(
    fields: Fields, tokens: list[str], merges: list[tuple[str, str]], **options: str | bool
) -> tokenizers.Tokenizer:
    vocab = {token: index for index, token in enumerate(tokens)}
    # The library panics, past every `except Exception`, where a union is missing.
    for left, right in merges:
        if left + right not in vocab:
            raise fields.fail(f"merges do not fit the tokens ({left} and {right} make none)")
    try:
        return tokenizers.Tokenizer(models.BPE(vocab, merges, **options))
    except Exception as error:  # the library raises bare Exceptions
        raise fields.fail(f"merges do not fit the tokens ({error})") from error


def _finished(
    checkpoint: Checkpoint, fields: Fields, tokens: list[str], tokenizer: tokenizers.Tokenizer, split: Split
) -> tokenizers.Tokenizer:
    """Adds the tokens that are taken whole, and the BOS and EOS tokens put around a text."""
    types = checkpoint.metadata.get(_KEY + "token_type") or []
    if types and len(types) != len(tokens):
        raise fields.fail(f"token_type has {len(types)} entries for {len(tokens)} tokens")
    whole = [(token, type_) for token, type_ in zip(tokens, types, strict=False) if token]
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token, type_ in whole if type_ in (_UNKNOWN, CONTROL)]
    )
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token, type_ in whole if type_ == _USER_DEFINED])
    around = {}
    for key, default in (("bos", split.bos), ("eos", False)):
        if f"{key}_token_id" in fields and fields.flag(f"add_{key}_token", default):
            index = fields.integer(f"{key}_token_id")
            if index >= len(tokens):
                raise fields.fail(f"{key}_token_id {index} is not one of the {len(tokens)} tokens")
            around[key] = (tokens[index], index)
    if around:
        template = [around[key][0] if key in around else "" for key in ("bos", "eos")]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[part for part in (template[0], "$A", template[1]) if part], special_tokens=list(around.values())
        )
    return tokenizer
