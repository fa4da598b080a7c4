"""Who must leave when the blocks run out."""

from collections.abc import Sequence as Listing

from headway.scheduling.sequence import Sequence


def seniority(sequence: Sequence) -> tuple[int, float, int]:
    """Least first: by lane, then by age."""
    return (sequence.lane, *sequence.order)


def choose_victim(running: Listing[Sequence], last: int | None) -> Sequence:
    """Of the lowest lane, the one that costs least to compute again; of equals the youngest.

    The most senior of all never leaves, so that somebody always comes to an end, and whoever left `last` (an id) is
    spared as long as there is another.
    """
    senior = min(running, key=seniority)
    others = [s for s in running if s is not senior] or [senior]
    fresh = [s for s in others if s.id != last] or others
    return min(fresh, key=price)


def price(sequence: Sequence) -> tuple[int, int, float, int]:
    """Least first: who leaves with the least harm."""
    arrival, serial = sequence.order
    return (-sequence.lane, sequence.computed, -arrival, -serial)
