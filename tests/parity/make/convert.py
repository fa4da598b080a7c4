"""Run llama.cpp's convert_hf_to_gguf.py, but say which BPE pre-tokenizer a home-made tokenizer has.

The converter recognises a pre-tokenizer by the hash of what the tokenizer answers, so it refuses one trained
here; everything else, above all the layout of the tensors, is the converter's own work.

    python convert.py LLAMA_CPP_CHECKOUT PRE_TOKENIZER [convert_hf_to_gguf.py's arguments ...]
"""

import sys


def main() -> None:
    """Patch the recognition, then convert."""
    checkout, pre, *arguments = sys.argv[1:]
    sys.path.insert(0, checkout)
    import convert_hf_to_gguf
    from conversion.base import TextModel

    TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
    sys.argv = ["convert_hf_to_gguf.py", *arguments]
    convert_hf_to_gguf.main()


if __name__ == "__main__":
    main()
