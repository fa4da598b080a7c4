"""The server against its own OpenAPI document, by schemathesis: what that allows, and what it does not, on every route.
Never a 500, a hang or a crash; what is answered is as the document says."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.core.failures import FailureGroup
from server_rig import Rig
from shared_rig import rig_in

EXAMPLES, MORE = 6, 300  # of each kind on each route
MODES = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
CHECKS = ["not_a_server_error", "content_type_conformance", "response_schema_conformance"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig_in(tmp_path_factory.mktemp("server")) as rig:
        yield rig


def operations(rig: Rig) -> list[APIOperation[Any, Any, Any, Any]]:
    """Every route and method of the document that the server gives."""
    schema = schemathesis.openapi.from_dict(rig.http.get("/openapi.json").json())
    return [found.ok() for found in schema.get_all_operations()]


def try_out(operation: APIOperation[Any, Any, Any, Any], mode: GenerationMode, rig: Rig, examples: int) -> None:
    """Raises the checks' failures, and requests' own for a hang or a crash."""
    checks = [schemathesis.checks.CHECKS.get_one(name) for name in CHECKS]

    # The same in each run, so that a failure is one tomorrow too.
    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def tried(case: Case) -> None:
        answer = case.call(base_url=rig.url, timeout=20)
        case.validate_response(answer, checks=checks)

    with suppress(Unsatisfiable):  # nothing can be wrong with a request that has no parameters
        tried()


def sweep(rig: Rig, examples: int) -> None:
    problems = []
    for operation in operations(rig):
        for mode in MODES:
            try:
                try_out(operation, mode, rig, examples)
            except (Exception, FailureGroup) as error:
                problems.append(f"{operation.label} ({mode.value}): {error!r} {error}"[:1500])
    assert not problems, f"{len(problems)}:\n" + "\n".join(problems)
    rig.wait_idle()


def test_the_document_names_the_routes(server: Rig) -> None:
    found = {operation.label for operation in operations(server)}
    assert {"POST /v1/chat/completions", "POST /v1/responses", "GET /generate", "GET /health/ready"} <= found


def test_every_route_keeps_to_its_document(server: Rig) -> None:
    sweep(server, EXAMPLES)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_every_route_keeps_to_its_document_for_long(server: Rig) -> None:
    sweep(server, MORE)
