"""What nsqadmin's own description of its API says is so: many made-up requests, and no surprise.

A 502 is no fault here: it is the official answer when no daemon knows a topic. A status that the
description does not name, such as 500, is one.
"""

import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import Case
from schemathesis.checks import CHECKS
from schemathesis.specs.openapi import checks as _registered

from .conftest import Installation

EXAMPLES = 12  # of each operation
ANSWER_S_MAX = 60  # two cores that others use too
NAMES = ["status_code_conformance", "content_type_conformance", "response_schema_conformance"]


def test_requests_made_from_the_description(installation: Installation) -> None:
    assert _registered is not None  # importing it registers the checks
    base = f"http://127.0.0.1:{installation.admin.http_port}"
    described = schemathesis.openapi.from_url(f"{base}/api/openapi.json", timeout=ANSWER_S_MAX)
    operations = [found.ok() for found in described.get_all_operations()]
    methods = {operation.method.upper() for operation in operations}
    assert methods == {"GET", "POST", "PUT", "DELETE"}
    assert len(operations) > 15
    checks = CHECKS.get_by_names(NAMES)
    for operation in operations:

        @settings(max_examples=EXAMPLES, deadline=None, database=None,
                  suppress_health_check=list(HealthCheck))  # fmt: skip
        @given(case=operation.as_strategy())
        def answers_as_described(case: Case) -> None:
            case.call_and_validate(checks=checks, timeout=ANSWER_S_MAX)

        answers_as_described()
