"""Run llama.cpp's convert_hf_to_gguf.py, but say which BPE pre-tokenizer a home-made tokenizer has, if there is one.

The converter recognises a pre-tokenizer by the hash of what the tokenizer answers, so it refuses one trained
here; everything else, above all the layout of the tensors, is the converter's own work. PRE_TOKENIZER "none": the
folder has no tokenizer, and the file gets none.

    python convert.py LLAMA_CPP_CHECKOUT PRE_TOKENIZER [convert_hf_to_gguf.py's arguments ...]
"""

import sys


def main() -> None:
    """Patch the recognition, then convert."""
    checkout, pre, *arguments = sys.argv[1:]
    sys.path.insert(0, checkout)
    import convert_hf_to_gguf
    from conversion.base import TextModel

    if pre == "none":
        made = TextModel.__init__

        def make(self: TextModel, *args: object, **kwargs: object) -> None:
            made(self, *args, **kwargs)
            self.set_vocab = lambda: None

        TextModel.__init__ = make
    TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
    sys.argv = ["convert_hf_to_gguf.py", *arguments]
    convert_hf_to_gguf.main()


if __name__ == "__main__":
    main()
