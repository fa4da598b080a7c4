"""Starts the generations of one response."""

from contextlib import ExitStack

from headway.serving.frontend import Frontend
from headway.serving.generation import Generation
from headway.serving.request import Request


def start_all(frontend: Frontend, requests: list[Request], choices: int) -> list[Generation]:
    """All of them or, if the gate refuses one, none. Each `choices` in a row have one prompt: the first of them leads.

    Raises Overloaded and EngineUnavailable."""
    with ExitStack() as undo:
        generations: list[Generation] = []
        for index, request in enumerate(requests):
            leader = generations[index - index % choices] if index % choices else None
            generation = frontend.generate(request, leader)
            undo.callback(generation.close, "refused")
            generations.append(generation)
        undo.pop_all()
    return generations
