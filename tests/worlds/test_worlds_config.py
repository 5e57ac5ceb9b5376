"""Settings: what is accepted, and what the one sentence says of what is not."""

from pathlib import Path
from typing import Literal

import pydantic
import pytest
import yaml

from polopt.config import Config, ConfigError, parse


class Inner(Config):
    rate: float = 0.1
    shape: tuple[int, ...] = ()


class Outer(Config):
    name: str
    inner: Inner = Inner()
    many: tuple[Inner, ...] = ()
    where: Path | None = None
    size: int | Literal["auto"] = "auto"
    steps: pydantic.PositiveInt = 1


def test_a_yaml_recipe_is_read_with_its_types() -> None:
    text = "{name: a, inner: {rate: 1e-5, shape: [1, 2]}, many: [{rate: 2}], where: x/y, size: 3}"
    parsed = parse(Outer, yaml.safe_load(text), "recipe.yaml")
    assert parsed.inner == Inner(rate=0.00001, shape=(1, 2))
    assert parsed.many[0].rate == 2
    assert parsed.where == Path("x/y")
    assert parsed.size == 3


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"nmae": "a"}, "recipe.nmae is not a setting; did you mean 'name'?"),
        ({"name": "a", "inner": {"rat": 1}}, "recipe.inner.rat is not a setting; did you mean 'rate'?"),
        ({"name": "a", "inner": {"zzz": 1}}, "recipe.inner.zzz is not a setting; it has: rate, shape"),
        (
            {"name": "a", "many": [{}, {"rate": "fast"}]},
            "recipe.many.1.rate = 'fast': expected a valid number, unable to parse string as a number",
        ),
        ({}, "recipe.name is missing; add it"),
        ({"name": "a", "steps": 0}, "recipe.steps = 0: expected greater than 0"),
        ({"name": "a", "inner": 3}, "recipe.inner = 3: expected a valid dictionary or instance of Inner"),
        (["name"], "recipe: expected settings by name, found ['name']"),
    ],
)
def test_one_sentence_names_path_finding_and_fix(data: object, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(Outer, data, "recipe")
    assert str(caught.value) == sentence


def test_a_union_says_all_it_would_take_and_no_internal_names() -> None:
    with pytest.raises(ConfigError, match=r"^recipe.size = 'big': expected a valid integer.* or 'auto'$"):
        parse(Outer, {"name": "a", "size": "big"}, "recipe")


def test_settings_do_not_change_afterwards() -> None:
    with pytest.raises(pydantic.ValidationError):
        Inner().rate = 2.0  # type: ignore[misc]
