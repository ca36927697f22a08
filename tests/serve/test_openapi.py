"""The server against its own description, by schemathesis: no request that it makes up is an error of ours."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance
from serving import Served, serving


@pytest.fixture(scope="module")
def server():
    with serving() as running:
        yield running


CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance]


def check_operations(server: Served, examples: int) -> None:
    schema = schemathesis.openapi.from_url(f"http://{server.address}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) > 10
    for operation in operations:
        strategy = operation.as_strategy() | operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE)

        @given(case=strategy)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def check(case: schemathesis.Case) -> None:
            answer = case.call(timeout=60)
            case.validate_response(answer, checks=CHECKS)

        check()


def test_made_up_requests_are_never_an_error_of_ours(server):
    check_operations(server, 5)


@pytest.mark.slow
def test_many_made_up_requests_are_never_an_error_of_ours(server):
    check_operations(server, 500)
