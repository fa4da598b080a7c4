"""docs/api.md says of each field what the schemas do."""

import importlib.util
from pathlib import Path

import pytest
from pydantic import BaseModel

SCRIPT = Path(__file__).parents[3] / "docs" / "api_table.py"
spec = importlib.util.spec_from_file_location("api_table", SCRIPT)
assert spec is not None and spec.loader is not None
api_table = importlib.util.module_from_spec(spec)
spec.loader.exec_module(api_table)


def test_the_page_is_up_to_date() -> None:
    text = api_table.PAGE.read_text()
    assert api_table.page(text) == text, "run docs/api_table.py"
    assert set(api_table.SECTION.findall(text)) and all(f"fields of {name} " in text for name in api_table.SCHEMAS)


@pytest.mark.parametrize("schema", api_table.SCHEMAS.values(), ids=lambda schema: schema.__name__)
def test_every_field_is_in_it(schema: type[BaseModel]) -> None:
    paths = [path for path, _, _ in api_table.rows(schema)]
    assert {path.split(".")[0].removesuffix("[]") for path in paths} == set(schema.model_fields)
    for path, kind, status in api_table.rows(schema):
        assert kind and status.startswith(("honoured", "accepted, without effect", "refused, but for null")), path
