"""Every field of a batch as a page: docs/fields.md, made from the registries that the library checks batches by.

python -m benchmarks.fields_page
"""

from __future__ import annotations

import inspect
import re

from benchmarks.spec import HERE
from polopt import Experience
from polopt.extras import EXTRAS
from polopt.fields import BOOLS, FLOATS, SHAPES

PAGE = HERE.parent / "docs" / "fields.md"
INTRO = """\
# Fields of a batch

`Experience` is B rows by T decisions. A part declares the fields that it reads (`reads`), a loop declares those that it
provides (`polopt.capabilities`), and what is lacking is refused before anything runs. A field of another shape or type
is refused when the batch is made. This page is made by `python -m benchmarks.fields_page`."""
EXTRAS_INTRO = """\
## Extras

`experience.extras` holds tensors with leading dimension B, or lists of length B, by name. Names of your own are free;
those below are checked like fields. Beyond them, `signal_<name>` [B] is what a world reports of a row beside its
reward, `old_<output>` an output of the policy before its first update on the batch, and `<name>_logp` [B, T] the
log-probabilities under a frozen policy that a stage names in `policies`."""


def meanings() -> dict[str, str]:
    """Returns the sentence on each field in the docstring of `Experience`."""
    text = " ".join(inspect.cleandoc(Experience.__doc__ or "").split("Raises:")[0].split())
    names = "|".join([*SHAPES, "support", "horizon", "extras", "sampled_by", "full_batch_evaluation"])
    parts = re.split(rf"(?<=[.;] )((?:(?:{names})(?:, )?)+): ", text)[1:]
    found = dict(zip(parts[::2], parts[1::2], strict=True))
    return {name: meaning.strip(" ;") for many, meaning in found.items() for name in many.split(", ")}


def page() -> str:
    """Returns the page's text."""
    known = meanings()
    lines = [INTRO, "", "| field | shape | type | meaning |", "|---|---|---|---|"]
    for name, shapes in SHAPES.items():
        kind = "bool" if name in BOOLS else "float" if name in FLOATS else "int"
        shape = " or ".join(f"[{', '.join(each)}]" for each in shapes)
        meaning = re.sub(r"^(\[B(, T)?\](, | or )?)+\s*(bool|int64)?[,;]?\s*", "", known[name])
        lines.append(f"| `{name}` | {shape} | {kind} | {meaning} |")
    lines += ["", EXTRAS_INTRO, "", "| extra | shape | type | meaning | written by |", "|---|---|---|---|---|"]
    for extra in EXTRAS.values():
        shape = f"[{', '.join(extra.shape)}]"
        lines.append(f"| `{extra.name}` | {shape} | {extra.kind} | {extra.meaning} | {extra.writer} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
