"""Run llama.cpp's convert_hf_to_gguf.py, but say which BPE pre-tokenizer a home-made tokenizer has, if there is one.

The converter recognises a pre-tokenizer by the hash of what the tokenizer answers, so it refuses one trained
here; everything else, above all the layout of the tensors, is the converter's own work. PRE_TOKENIZER "none": the
folder has no tokenizer, and the file gets none.

    python convert.py LLAMA_CPP_CHECKOUT PRE_TOKENIZER FOLDER [convert_hf_to_gguf.py's arguments ...]
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path


def without_tokenizer(folder: Path) -> None:
    """Put a vocabulary into `folder`, whose size is all that some converters want to know, and write none."""
    from conversion.base import TextModel

    words = {f"w{i}": i for i in range(json.loads((folder / "config.json").read_text())["vocab_size"])}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": words}, "added_tokens": []}))
    made = TextModel.__init__

    def make(self: TextModel, *args: object, **kwargs: object) -> None:
        made(self, *args, **kwargs)
        self.set_vocab = lambda: None

    TextModel.__init__ = make


def main() -> None:
    """Patch what concerns the tokenizer, then convert."""
    checkout, pre, folder, *arguments = sys.argv[1:]
    sys.path.insert(0, checkout)
    import convert_hf_to_gguf
    from conversion.base import TextModel

    TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / Path(folder).name
        shutil.copytree(folder, copy)
        if pre == "none":
            without_tokenizer(copy)
        sys.argv = ["convert_hf_to_gguf.py", str(copy), *arguments]
        convert_hf_to_gguf.main()


if __name__ == "__main__":
    main()
