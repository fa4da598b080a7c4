"""The model layer: files, tokenizer, templates and the runners that make the next token."""
