"""The frontend without an engine."""

import asyncio

import pytest
from server_rig import make_text

from headway.core.config import Settings
from headway.core.errors import Overloaded
from headway.serving import frontend as module
from headway.serving.frontend import Frontend
from headway.serving.request import TextPrompt


def test_texts_to_tokenize_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_TOKENIZING", 1000)

    async def run() -> None:
        frontend = Frontend(make_text(), Settings(), "ipc://unused")
        try:
            first = asyncio.create_task(frontend.tokenize(TextPrompt("x" * 5000)))  # the first may have any length
            await asyncio.sleep(0)
            with pytest.raises(Overloaded):
                await frontend.tokenize(TextPrompt("y"))
            assert len(await first) == 5000
            both = await asyncio.gather(*[frontend.tokenize(TextPrompt("y" * 500)) for _ in range(2)])
            assert [len(ids) for ids in both] == [500, 500]
        finally:
            frontend.close()

    asyncio.run(run())
