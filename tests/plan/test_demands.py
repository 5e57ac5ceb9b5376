"""What methods need, as planned and as the loop then does it."""

import re
from types import SimpleNamespace

import pytest
import torch

from polopt import catalogue, index
from polopt.experience import Experience
from polopt.plan.requirements import requirements_of
from polopt.sampling import Demonstrations, Rollouts, Select, TransitionReplay
from polopt.sampling.batch_buffer import WeightBank
from polopt.teachers import TEACHER_FIELDS
from polopt.training.provided import LANGUAGE
from polopt.training.reference_policy import References


@pytest.mark.parametrize("slug", index.slugs("algorithm"))
def test_copies_and_passes_are_those_of_the_loop(slug):
    algorithm = catalogue.method(slug)
    found = requirements_of(algorithm)
    # What the language loop does not fill in itself, the stage's own policies do.
    lacks = [lack.name for lack in LANGUAGE.lacking(algorithm) if lack.kind == "field"]
    named = {name: None for name in lacks if re.fullmatch(r"extras\.[a-z]+_logp", name) and name not in TEACHER_FIELDS}
    copies = References(SimpleNamespace(frozen=lambda: None), algorithm, named).policies
    averaged = algorithm.teacher is not None and algorithm.teacher.keeps_copy
    banks = sum(isinstance(module, WeightBank) for module in algorithm.modules())
    assert found.frozen == len(copies) + averaged + banks
    assert found.other >= len(copies)
    outputs = algorithm.objective.active_fields("policy_outputs")
    assert found.critic == ("value" in algorithm.required_fields | outputs)
    assert bool(found.survey) == bool(algorithm.objective.required_full_batch_outputs)
    if not isinstance(algorithm.sampling, TransitionReplay):  # whose groups are of transitions
        assert found.group == algorithm.sampling.settings().get("group", algorithm.sampling.group_size)


class Kept(Select):
    """The first rows of a batch."""

    share: float = 0.5

    def forward(self, experience):
        return experience[: int(self.share * len(experience))]


class Counting:
    """A source that counts the rollouts it is asked for."""

    rows, size = 24, 100

    def __init__(self):
        self.generator, self.played = torch.Generator(), 0

    def take(self, count):
        return torch.arange(count)

    def rollout(self, request):
        group = request.group
        self.played += len(group)
        some = torch.zeros(len(group))
        mask = torch.ones(len(group), 3, dtype=torch.bool)
        return Experience(mask=mask, rollout_logp=-torch.ones(len(group), 3), reward=some, outcome=some, group=group)


@pytest.mark.parametrize(("share", "refills"), [(0.5, 9), (0.26, 9), (1.0, 9), (0.1, 2), (0.5, 0)])
def test_rollouts_draw_what_they_say(share, refills):
    part = Rollouts(group=2, select=[Kept(share=share)], refills=refills)
    source = Counting()
    part(source)
    assert part.sampling_overhead(share, 10) * source.rows == source.played


def test_what_is_shown_is_not_drawn():
    assert Demonstrations().sampling_overhead(0.5, 10) == 0
    assert requirements_of(catalogue.method("sft")).sentence() == "nothing is sampled"
    assert requirements_of(catalogue.method("gspo")).sentence() == ""


def test_parts_that_sample_more_say_so():
    plain = requirements_of(catalogue.method("gspo"))
    cuts, probes, replay = (requirements_of(catalogue.method(s), decisions=100) for s in ("spo", "rex-rag", "remix"))
    assert cuts.sampling_overhead > 10 * plain.sampling_overhead
    assert plain.sampling_overhead < probes.sampling_overhead < 1.2 * plain.sampling_overhead
    assert replay.sampling_overhead < plain.sampling_overhead
