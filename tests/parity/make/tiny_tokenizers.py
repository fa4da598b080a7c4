"""Tiny tokenizers trained on src/headway/bench/quality_text.txt (public domain): byte-level BPE and sentencepiece.

Each is written into a Hugging Face folder beside a model. Needs tokenizers, sentencepiece, transformers.
"""

import io
import json
from pathlib import Path

import sentencepiece
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

TEXT = Path(__file__).resolve().parents[3] / "src" / "headway" / "bench" / "quality_text.txt"
SPLIT = (  # the pre-tokenizer of Qwen2 and Llama 3, which differ in how many digits go together
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DIGITS = {"qwen2": "", "llama-bpe": "{1,3}"}  # by llama.cpp's name


def write_bpe(folder: Path, vocab: int, kind: str) -> None:
    """A byte-level BPE with the pre-tokenizer called `kind` and ChatML's special tokens as ids 0, 1 and 2."""
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = Tokenizer(models.BPE(ignore_merges=kind == "llama-bpe"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT.replace("DIGITS", DIGITS[kind])), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=specials,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train([str(TEXT)], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_tokenizer_config(folder, "PreTrainedTokenizerFast", dict(zip(("pad", "bos", "eos"), specials, strict=True)))


def write_spm(folder: Path, vocab: int) -> None:
    """A sentencepiece BPE with byte fallback (tokenizer.model), and the same as tokenizer.json."""
    blob = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.read_text().splitlines()),
        model_writer=blob,
        model_type="bpe",
        vocab_size=vocab,
        byte_fallback=True,
        character_coverage=0.99,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        split_digits=True,
        allow_whitespace_only_pieces=True,
        num_threads=1,
        minloglevel=2,
    )
    (folder / "tokenizer.model").write_bytes(blob.getvalue())
    fast = transformers.LlamaTokenizerFast.from_pretrained(folder, add_bos_token=True)
    rust = fast.backend_tokenizer  # spelled as the tokenizer.json of Llama 2 and Mistral: always one leading space
    rust.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    rust.pre_tokenizer = None
    rust.save(str(folder / "tokenizer.json"))
    write_tokenizer_config(folder, "LlamaTokenizerFast", {"unk": "<unk>", "bos": "<s>", "eos": "</s>"}, bos=True)


def write_tokenizer_config(folder: Path, name: str, tokens: dict[str, str], bos: bool = False) -> None:
    """tokenizer_config.json: the class, the named special tokens, and a chat template."""
    template = (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    config = {
        "tokenizer_class": name,
        "add_bos_token": bos,
        "add_eos_token": False,
        "chat_template": template,
        "clean_up_tokenization_spaces": False,
    }
    config |= {f"{role}_token": token for role, token in tokens.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
