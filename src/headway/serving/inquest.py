"""Finds the request that kills engines, from who was in the step that each of them died in.

Members of a step in which an engine died are suspects. The next engine runs them in two groups, apart from each other
and from everybody else; whose group it dies in is halved again, and the others are cleared. Convicted is who was alone
in two such steps at the same position. So one that kills whenever it is computed is found, among n, with the death of
ceil(log2(n)) + 2 engines at most, and engines that die of something else convict nobody but by a rare accident.
"""

from collections.abc import Sequence

from headway.serving.step_board import Member

Group = tuple[tuple[int, int], ...]  # (request, position up to which it is to be watched)
MOST_ALONE = 256  # remembered


class Inquest:
    """The parent's, over the lives of its engines. `groups`: what the next engine is to run apart."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self._alone: dict[int, Member] = {}  # who was alone in a deadly step, and where

    def died(self, members: Sequence[Member], group: int, watched: int) -> int | None:
        """An engine died while it computed `members`, who are `groups[group]` or, for -1, of no group; `watched` were
        still apart. Returns who is convicted."""
        if not members:
            return None  # between two steps, which tells nothing
        if group < 0:  # somebody new; those who have not been cleared yet stay apart
            ids = {member.id for member in members}
            rest = [tuple(s for s in g if s[0] not in ids) for g in self.groups] if watched else []
        else:
            rest = []
        self.groups = [*_halves(members), *(g for g in rest if g)]
        if len(members) > 1:
            return None
        return self._judge(members[0])

    def _judge(self, member: Member) -> int | None:
        before = self._alone.pop(member.id, None)
        if before is not None and _meet(before, member):
            self.groups = self.groups[1:]
            return member.id
        self._alone[member.id] = member
        if len(self._alone) > MOST_ALONE:
            del self._alone[next(iter(self._alone))]
        return None


def _meet(a: Member, b: Member) -> bool:
    return a.start < b.start + b.tokens and b.start < a.start + a.tokens


def _halves(members: Sequence[Member]) -> list[Group]:
    half = (len(members) + 1) // 2
    parts = (members[:half], members[half:])
    return [tuple((m.id, m.start + m.tokens) for m in part) for part in parts if part]
