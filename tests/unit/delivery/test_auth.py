"""Whose request it is: keys, lanes and tenants."""

import asyncio
import hmac
from dataclasses import replace
from typing import Any

import pytest
from starlette.requests import Request

from headway.core.config import Settings
from headway.core.errors import Unauthorized
from headway.core.lane import LANES, Lane
from headway.delivery.auth import make_auth
from headway.delivery.caller import ANYBODY, LONGEST_TENANT, OPERATOR, Caller, caller_of

KEYS = (
    {"key": "gold", "tenant": "a", "lane": "priority", "weight": 3.0},
    {"key": "plain", "tenant": "b"},
    {"key": "spare", "tenant": "b", "lane": "flex"},
)


def settings(**sections: Any) -> Settings:
    return Settings(**sections)


def ask(check: Any, key: str | None) -> Caller:
    headers = [] if key is None else [(b"authorization", b"Bearer " + key.encode())]
    request = Request({"type": "http", "headers": headers})
    asyncio.run(check(request))
    return caller_of(request)


def test_an_open_server_asks_for_no_key_and_minds_none() -> None:
    made = settings()
    check = make_auth(lambda: made)
    assert ask(check, None) is ask(check, "anything") == ANYBODY


def test_every_key_is_its_caller() -> None:
    made = settings(keys=KEYS, server={"api_key": "operator"})
    check = make_auth(lambda: made)
    found = {key: ask(check, key) for key in ("gold", "plain", "spare", "operator")}
    assert {key: replace(caller, key="") for key, caller in found.items()} == {
        "gold": Caller("a", Lane.PRIORITY, Lane.PRIORITY, 3.0),
        "plain": Caller("b", Lane.DEFAULT, Lane.DEFAULT, 1.0),
        "spare": Caller("b", Lane.FLEX, Lane.FLEX, 1.0),
        "operator": OPERATOR,
    }
    assert Caller("", Lane.DEFAULT, Lane.PRIORITY, 1.0) == OPERATOR
    names = {caller.key for caller in found.values()}  # tell them apart, and show none of them
    assert len(names) == 4 and not names & {"", *found}


@pytest.mark.parametrize("sections", [{"keys": KEYS}, {"server": {"api_key": "operator"}}])
@pytest.mark.parametrize("key", [None, "", "gol", "golden", "GOLD", "operato"])
def test_any_other_key_is_refused(sections: dict[str, Any], key: str | None) -> None:
    made = settings(**sections)
    with pytest.raises(Unauthorized):
        ask(make_auth(lambda: made), key)


@pytest.mark.parametrize("key", ["gold", "spare", "wrong"])
def test_every_key_is_compared_wherever_the_right_one_is(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    compare = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: seen.append(b) or compare(a, b))
    made = settings(keys=KEYS, server={"api_key": "operator"})
    try:
        ask(make_auth(lambda: made), key)
    except Unauthorized:
        assert key == "wrong"
    assert seen == [b"gold", b"plain", b"spare", b"operator"]


@pytest.mark.parametrize("key", ["voil\u00e0", "\u0160", "\u4e2d\u00a0"])  # in UTF-8 they end like spaces of latin-1
def test_keys_beyond_ascii(key: str) -> None:
    made = settings(keys=({"key": key, "tenant": "a"},))
    assert ask(make_auth(lambda: made), key).tenant == "a"


def test_keys_of_the_moment_count() -> None:
    state = [settings(keys=KEYS[:1])]
    check = make_auth(lambda: state[0])
    assert ask(check, "gold").weight == 3.0
    state[0] = settings(keys=({**KEYS[0], "weight": 5.0}, KEYS[1]))
    assert ask(check, "gold").weight == 5.0
    assert ask(check, "plain").tenant == "b"
    state[0] = settings(keys=KEYS[1:2])
    with pytest.raises(Unauthorized):
        ask(check, "gold")
    state[0] = settings()
    assert ask(check, "gold") == ANYBODY


@pytest.mark.parametrize("own", Lane)
@pytest.mark.parametrize("asked", Lane)
def test_a_keys_lane_is_the_highest_it_gets(own: Lane, asked: Lane) -> None:
    caller = Caller("a", lane=own, ceiling=own)
    assert caller.lane_for(asked.label) is (asked if asked >= own else own)
    assert caller.lane_for("auto") is caller.lane_for(None) is own


@pytest.mark.parametrize("caller", [ANYBODY, OPERATOR])
def test_without_keys_of_tenants_every_lane_is_open_and_default_is_what_one_gets(caller: Caller) -> None:
    assert [caller.lane_for(label) for label in LANES] == list(Lane)
    assert caller.lane_for("auto") is caller.lane_for(None) is Lane.DEFAULT


def test_user_is_the_tenant_of_an_open_server_only() -> None:
    assert [ANYBODY.tenant_for(user) for user in ("ann", "", None)] == ["ann", "", ""]
    assert Caller("a").tenant_for("ann") == "a"
    assert OPERATOR.tenant_for("ann") == ""


def test_long_users_are_cut_short_but_stay_apart() -> None:
    longest = "x" * LONGEST_TENANT
    assert ANYBODY.tenant_for(longest) == longest
    one, other = ANYBODY.tenant_for(longest + "1"), ANYBODY.tenant_for(longest + "2")
    assert one != other and max(len(one), len(other)) <= LONGEST_TENANT
    assert one == ANYBODY.tenant_for(longest + "1")
    assert one == "cef677068ce3bcabbeb44e5137f668a4"  # the same in every worker and after every restart
