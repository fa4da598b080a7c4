"""The default model with a vocabulary of 262,144 tokens, to measure what drawing costs where it costs most.

    python benchmarks/wide_vocabulary.py wide.gguf && headway bench step --model wide.gguf

Its rows of the embedding are repeated, and the added tokens have no use: only its speed means something.
"""

import argparse
from pathlib import Path

import gguf
import numpy as np

from headway.model.source import resolve

TOKENS = 262_144
SKIPPED = ("GGUF.", "general.architecture")  # written by the writer itself
EMBEDDINGS = ("token_embd.weight", "output.weight")


def widened(source: Path, target: Path, count: int) -> None:
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, architecture)
    for name, values in reader.fields.items():
        if name.startswith(SKIPPED):
            continue
        contents = values.contents()
        if name == "tokenizer.ggml.tokens":
            contents += [f"<wide_{i}>" for i in range(len(contents), count)]
        elif name == "tokenizer.ggml.token_type":
            contents += [int(gguf.TokenType.UNUSED)] * (count - len(contents))
        elif name.endswith(".vocab_size"):
            contents = count
        inner = values.types[-1] if values.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, contents, values.types[0], inner)
    for tensor in reader.tensors:
        data = tensor.data
        if tensor.name in EMBEDDINGS:
            data = np.resize(data, (count, *data.shape[1:]))
        writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks/wide_vocabulary.py", description=__doc__.splitlines()[0])
    parser.add_argument("target", type=Path)
    parser.add_argument("--tokens", type=int, default=TOKENS)
    options = parser.parse_args()
    widened(resolve(None), options.target, options.tokens)


if __name__ == "__main__":
    main()
