"""From prompts to token ids: chat template and tokenizer. Plain and synchronous; the offline `LLM` shares it."""

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from headway.core.errors import HeadwayError, InvalidRequest
from headway.model.text import TextModel
from headway.model.tool_prompt import with_tools
from headway.serving.request import ChatPrompt, Prompt, TextPrompt, TokenPrompt
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
                    batches[False].append((i, self._render(prompt)))
            except HeadwayError as error:
                results[i] = error
        for special, batch in batches.items():
            if batch:
                texts = [text for _, text in batch]
                encoded = self._text.tokenizer.encode_batch(texts, add_special=special)
                for (i, _), ids in zip(batch, encoded, strict=True):
                    results[i] = ids
        return results

    def _render(self, prompt: ChatPrompt) -> str:
        template = self._text.chat_template
        tools = None if prompt.tools is None else prompt.tools.specs
        messages: Sequence[Mapping[str, Any]] = prompt.messages
        if not self._text.answer_format.describes_tools:
            messages, tools = with_tools(messages, tools), None
        effort = self._effort(prompt.effort)
        for name in effort.keys() & prompt.variables.keys():
            raise InvalidRequest(f"reasoning_effort sets {name} too; send one of them", param="chat_template_kwargs")
        return template.render(messages, tools=tools, variables={**prompt.variables, **effort})

    def _effort(self, effort: str | None) -> dict[str, Any]:
        """The template's variables for reasoning_effort. Raises InvalidRequest where it has none to honour it."""
        variables = self._text.chat_template.variables
        if effort is None:
            return {}
        if "reasoning_effort" in variables:
            return {"reasoning_effort": effort}
        if "enable_thinking" in variables:
            return {"enable_thinking": effort != "none"}
        if effort == "none" and self._text.answer_format.thinking is None:
            return {}
        raise InvalidRequest(
            f"reasoning_effort {effort!r} cannot be honoured: this model's chat template has no setting for it",
            param="reasoning_effort",
            code="unsupported_value",
        )

    def _checked(self, ids: list[int]) -> "array[int]":
        check_ids(ids, self._text.vocab_size, "prompt")
        return array("I", ids)
