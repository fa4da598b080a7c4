"""From prompts to token ids: chat template and tokenizer. Plain and synchronous; the offline `LLM` shares it."""

from array import array
from collections.abc import Sequence

from headway.core.errors import HeadwayError
from headway.model.text import TextModel
from headway.serving.request import Prompt, TextPrompt, TokenPrompt
from headway.serving.resolve import check_ids


class PromptEncoder:
    """Templates and tokenises with one model."""

    def __init__(self, text: TextModel) -> None:
        self._text = text

    def encode(self, prompts: Sequence[Prompt]) -> "list[array[int] | HeadwayError]":
        """Ids as array('I') for each prompt; a prompt that cannot be encoded gets its error and spoils no other."""
        results: list[array[int] | HeadwayError] = [array("I")] * len(prompts)
        batches: dict[bool, list[tuple[int, str]]] = {False: [], True: []}  # by "with special tokens"
        for i, prompt in enumerate(prompts):
            try:
                if isinstance(prompt, TokenPrompt):
                    results[i] = self._checked(prompt.ids)
                elif isinstance(prompt, TextPrompt):
                    batches[prompt.add_special_tokens].append((i, prompt.text))
                else:
                    # The template writes the special tokens itself: a second BOS would change the output.
                    batches[False].append((i, self._text.chat_template.render(prompt.messages)))
            except HeadwayError as error:
                results[i] = error
        for special, batch in batches.items():
            if batch:
                texts = [text for _, text in batch]
                encoded = self._text.tokenizer.encode_batch(texts, add_special=special)
                for (i, _), ids in zip(batch, encoded, strict=True):
                    results[i] = ids
        return results

    def _checked(self, ids: list[int]) -> "array[int]":
        check_ids(ids, self._text.vocab_size, "prompt")
        return array("I", ids)
