"""What a part is: settings, state, changed copies, differences, YAML, and what it says when something is wrong."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys

import pytest
import torch
from battery import public_parts
from test_battery import KINDS

import polopt as po
from polopt.credit import (
    GAE,
    ConstantAdvantage,
    GroupMean,
    GroupStd,
    LeaveOneOut,
    MovingAverage,
    RelativeAdvantage,
    WhitenedAdvantage,
)
from polopt.features.groupings import SamePrompt
from polopt.methods.bupo import LayerRatio
from polopt.methods.rover import ValueRegression
from polopt.methods.srpo_routing import TeacherCertainty
from polopt.objectives import (
    Clip,
    Distillation,
    EntropyBonus,
    ObjectiveSchedule,
    Phase,
    ReferenceKL,
    SequenceMean,
    Surrogate,
    TokenMean,
    TokenRatio,
)
from polopt.part import Part, build, default_of, settings_of
from polopt.part_diff import diff
from polopt.part_names import NameNotFound, locate, name_of
from polopt.rewards import OutcomeReward, OverlongPenalty, SumOfRewards
from polopt.sampling import MixedGroups, Rollouts, TopK
from polopt.teachers import Feedback, First, SelfTeacher, Sibling

ROOMS = (po.credit, po.features, po.objectives, po.rewards, po.sampling, po.teachers)
EXAMPLES = {type(part): part for rows, _ in KINDS for row in rows.values() for part in row.part.parts()}
EXAMPLES |= {type(part): part for slug in po.slugs("algorithm") for part in po.method(slug).parts()}
asks = po.methods.agent_r.ChatErrorLocator(chat=po.backends.Chat(url="http://localhost:1", model="m"))
others = (First(hints=[Sibling(), Feedback()]), po.backends.FolderPool(path="pool"), asks)
EXAMPLES |= {type(part): part for part in (*others, po.sampling.ConsecutiveTasks(each=2))}
EXPORTED = public_parts(*ROOMS)


class TestSettings:
    @pytest.mark.parametrize(
        ("make", "error", "sentence"),
        [
            (lambda: Clip(hihg=1.0), TypeError, "objectives.Clip has no setting 'hihg'; did you mean 'high'?"),
            (lambda: SamePrompt(x=1), TypeError, "features.SamePrompt has no setting 'x'; it has: none"),
            (lambda: Clip(0.1), TypeError, "objectives.Clip takes its settings by name, found 1 positional"),
            (lambda: Clip(low="wide"), ValueError, "objectives.Clip: setting 'low' = 'wide' is not valid: "),
            (lambda: Rollouts(group=1.5), ValueError, "sampling.Rollouts: setting 'group' = 1.5 is not valid: "),
            (
                lambda: RelativeAdvantage(baseline=Clip()),
                ValueError,
                "credit.RelativeAdvantage: setting 'baseline' = objectives.Clip() is",
            ),
            (
                lambda: ReferenceKL(value="k4"),
                ValueError,
                "objectives.ReferenceKL: setting 'value' = 'k4' is not valid",
            ),
            (lambda: Surrogate(weights=[Clip()]), ValueError, "objectives.Surrogate: setting 'weights' = "),
            (
                lambda: Clip(low=2.0),
                ValueError,
                "need 0 <= low <= 1 and high >= 0, found 2.0, 0.2",
            ),
            (
                lambda: Clip(low=float("nan")),
                ValueError,
                "'low' = nan is not valid: Input should be a finite",
            ),
            (lambda: Clip(dual=1.0), ValueError, "dual must be > 1, found 1.0"),
            (lambda: GAE(gamma=1.1), ValueError, "gamma and lam must be in [0, 1], found 1.1, 0.95"),
            (lambda: GroupStd(eps=-1.0), ValueError, "eps must be >= 0, found -1.0"),
            (lambda: MovingAverage(decay=1.0), ValueError, "decay must be in [0, 1), found 1.0"),
            (lambda: SumOfRewards(terms=[]), ValueError, "rewards.SumOfRewards needs at least one term, found none"),
            (
                lambda: SumOfRewards(terms=[OutcomeReward()], weights=[1.0, 2.0]),
                ValueError,
                "1 terms need as many weights, found 2",
            ),
            (lambda: Rollouts(group=0), ValueError, "need group >= 1 and refills >= 0, found 0 and 0"),
            (lambda: WhitenedAdvantage(), TypeError, "credit"),
            (lambda: LayerRatio(layer=0), ValueError, "layers are counted from 1, found 0"),
            (lambda: ValueRegression(rho=0.0), ValueError, "rho must be > 0, found 0.0"),
            (lambda: Distillation(alpha=1.5), ValueError, "alpha must be in [0, 1], found 1.5"),
            (lambda: TeacherCertainty(beta=-1.0), ValueError, "beta must be >= 0, found -1.0"),
            (lambda: Phase(objective=Surrogate(), batches=-1), ValueError, "batches must be >= 0 or None, found -1"),
            (
                lambda: ObjectiveSchedule(phases=[Phase(objective=Surrogate(), batches=2)]),
                ValueError,
                "a number of batches for each phase but the last, which has None, found [2]",
            ),
            (lambda: SelfTeacher(rate=1.5), ValueError, "need 0 <= rate <= 1 and top >= 1, found 1.5 and 100"),
            (lambda: SelfTeacher(wording="{prompt}"), ValueError, "wording must have {prompt} and {hint} and no other"),
            (lambda: Sibling(wording="see {answr}"), ValueError, "wording must have {answer} and no other place"),
            (lambda: Feedback(wording="{feedback} {"), ValueError, "wording must have {feedback} and no other place"),
            (lambda: First(hints=[]), ValueError, "teachers.First needs at least one hint, found none"),
        ],
    )
    def test_one_sentence(self, make, error, sentence):
        with pytest.raises(error, match=re.escape(sentence)) as caught:
            make()
        assert "\n" not in str(caught.value)

    def test_a_new_default_needs_its_type(self):
        with pytest.raises(TypeError, match="setting 'low' needs its type again"):

            class Narrow(Clip):
                low = 0.1

        class Wide(Clip):
            low: float = 0.4

        assert Wide().low == 0.4

    @pytest.mark.parametrize("cls", EXPORTED, ids=name_of)
    def test_defaults_are_never_shared(self, cls):
        """Two parts share no module and no tensor, neither with each other nor with the class's defaults."""
        required = any(default_of(f) is dataclasses.MISSING for f in settings_of(cls))
        first, second = (po.from_yaml(EXAMPLES[cls].to_yaml()) if required else cls() for _ in "ab")
        defaults = [p for f in settings_of(cls) if isinstance(p := default_of(f), Part)]
        modules = [{id(m) for m in p.modules()} for p in (first, second, *defaults)]
        assert sum(map(len, modules)) == len(set().union(*modules))
        tensors = [{t.data_ptr() for t in p.state_dict().values() if t.numel()} for p in (first, second, *defaults)]
        assert sum(map(len, tensors)) == len(set().union(*tensors))

    def test_state_of_one_algorithm_is_not_state_of_another(self):
        base = po.Algorithm(credit=RelativeAdvantage(baseline=MovingAverage(), scale=None))
        copy = base.but(**{"objective.trust.high": 0.3})
        e = po.Experience(mask=torch.ones(2, 1, dtype=torch.bool), reward=torch.ones(2))
        base.credit(e)
        assert base.credit.baseline.mass > 0
        assert copy.credit.baseline.mass == 0

    def test_needs_are_gathered_from_the_inside(self):
        algorithm = po.method("grpo").but(**{"objective.regularise": [EntropyBonus(), ReferenceKL()]})
        assert algorithm.required_fields == {"outcome", "reward", "group", "advantage", "rollout_logp", "ref_logp"}
        assert algorithm.required_outputs == {"entropy"}
        assert po.method("grpo", kl=0).required_fields == {"outcome", "reward", "group", "advantage", "rollout_logp"}


class TestBut:
    def test_reaches_inside(self):
        base = po.method("grpo")
        changed = base.but(**{"objective.trust.high": 0.28, "credit.scale": None, "sampling.group": 4})
        assert (changed.objective.trust.high, changed.objective.trust.low) == (0.28, 0.2)
        assert changed.credit.scale is None
        assert changed.sampling.group == 4
        assert (base.objective.trust.high, base.sampling.group) == (0.2, 64)

    def test_reaches_into_plain_settings(self):
        base = po.method("grpo")
        assert base.but(**{"sampling.support.temperature": 0.7}).sampling.support == po.Support(temperature=0.7)
        assert base.sampling.support == po.Support()
        with pytest.raises(ValueError, match="Support has no setting 'temprature'; did you mean 'temperature'"):
            base.but(**{"sampling.support.temprature": 0.7})

    def test_reaches_into_lists(self):
        base = Surrogate(regularise=[EntropyBonus(), ReferenceKL()])
        changed = base.but(**{"regularise.1.coefficient": 0.5, "regularise.0": ReferenceKL(value="k1")})
        assert [type(r).__name__ for r in changed.regularise] == ["ReferenceKL", "ReferenceKL"]
        assert changed.regularise[1].coefficient == 0.5
        assert base.regularise[1].coefficient == 0.04
        assert base.but(**{"regularise.-1.coefficient": 0.7}).regularise[1].coefficient == 0.7

    def test_without_changes_it_is_a_copy(self):
        base = po.method("grpo")
        copy = base.but()
        assert copy is not base
        assert diff(copy, base) == []
        assert not {id(m) for m in base.modules()} & {id(m) for m in copy.modules()}

    def test_plain_data_is_built(self):
        assert isinstance(Surrogate().but(aggregate={"part": "objectives.SequenceMean"}).aggregate, SequenceMean)

    def test_untouched_parts_keep_their_state(self):
        base = RelativeAdvantage(baseline=MovingAverage(decay=0.5))
        base(po.Experience(mask=torch.ones(2, 1, dtype=torch.bool), reward=torch.ones(2), group=torch.zeros(2).long()))
        assert base.but(scale=None).baseline.mass == base.baseline.mass > 0

    @pytest.mark.parametrize(
        ("change", "sentence"),
        [
            ({"objectiv": 1}, "Algorithm has no setting 'objectiv'; did you mean 'objective'?"),
            ({"objective.trust.hi": 1}, "objectives.Clip has no setting 'hi'; did you mean 'high'?"),
            ({"objective.trust.high": "x"}, "objectives.Clip: setting 'high' = 'x' is not valid"),
            ({"objective.regularise.3": None}, "'3' is not a position in a list of 1 parts"),
            ({"objective.trust.high.more": 1}, "'more' reaches into 0.2, which has no settings"),
        ],
    )
    def test_one_sentence(self, change, sentence):
        with pytest.raises(ValueError, match=re.escape(sentence)):
            po.method("grpo").but(**change)


class TestDiff:
    def test_names_the_outermost_difference(self):
        left = po.method("grpo")
        right = left.but(**{"objective.trust.high": 0.3, "objective.regularise.0.coefficient": 1.0})
        assert diff(left, right) == [
            ("objective.trust.high", 0.2, 0.3),
            ("objective.regularise.0.coefficient", 0.04, 1.0),
        ]

    def test_other_classes_differ_as_a_whole(self):
        ((path, left, right),) = diff(RelativeAdvantage(), RelativeAdvantage(baseline=LeaveOneOut()))
        assert path == "baseline"
        assert (type(left), type(right)) == (GroupMean, LeaveOneOut)

    def test_lists_of_other_lengths(self):
        ((path, left, right),) = diff(Surrogate(), Surrogate(regularise=[EntropyBonus()]))
        assert (path, len(left), len(right)) == ("regularise", 0, 1)
        assert diff(Surrogate(regularise=[]), Surrogate(regularise=())) == []


class TestNames:
    def test_every_exported_part_is_found_by_its_name(self):
        for cls in EXPORTED:
            assert locate(name_of(cls)) is cls

    @pytest.mark.parametrize(
        ("name", "sentence"),
        [
            (
                "credits.Relative",
                "'credits.Relative' is not a part's name: expected room.Class; did you mean 'credit'?",
            ),
            (
                "credit.RelativeAdvantag",
                "polopt.credit has no part 'RelativeAdvantag'; did you mean 'RelativeAdvantage'?",
            ),
            ("nowhere_at_all:Thing", "give an importable module or a path ending in .py"),
            ("missing.py:Thing", "missing.py does not exist; name a Python file"),
            (
                "polopt.credit:RelativeAdvantag",
                "polopt.credit has no 'RelativeAdvantag'; did you mean 'RelativeAdvantage'?",
            ),
        ],
    )
    def test_one_sentence(self, name, sentence):
        with pytest.raises(ValueError, match=re.escape(sentence)):
            build({"part": name})

    def test_a_part_outside_the_rooms_keeps_its_module(self):
        cls = type("Own", (Part,), {"__module__": "polopt.lab.source", "forward": lambda self: 0})
        assert name_of(cls) == "polopt.lab.source:Own"

    def test_a_part_beside_a_method_is_named_by_it(self):
        assert name_of(po.methods.bnpo.BetaScale) == "methods.bnpo.BetaScale"
        assert locate("methods.bnpo.BetaScale") is po.methods.bnpo.BetaScale
        made = build({"part": "methods.bnpo.BetaScale", "low": -1.0})
        assert diff(made, po.methods.bnpo.BetaScale(low=-1.0)) == []

    @pytest.mark.parametrize(
        ("name", "sentence"),
        [
            ("methods.bnpo.BetaScal", "polopt.methods.bnpo has no part 'BetaScal'; did you mean 'BetaScale'?"),
            ("methods.bnpo.Clip", "polopt.methods.bnpo has no part 'Clip'; it is objectives.Clip"),
            ("credit.BetaScale", "polopt.credit has no part 'BetaScale'; it is methods.bnpo.BetaScale"),
            ("methods.bnpoo.BetaScale", "polopt.methods has no file 'bnpoo'; did you mean 'bnpo'?"),
            ("methods.BetaScale", "polopt.methods has no file 'BetaScale'"),
        ],
    )
    def test_a_misspelled_part_beside_a_method(self, name, sentence):
        with pytest.raises(NameNotFound, match=re.escape(sentence)):
            locate(name)


USERS_PART = """
from polopt.credit import Credit

class Mine(Credit):
    factor: float = 2.0
    reads = frozenset({"reward"})

    def forward(self, experience):
        return experience.mask * experience.returns()[:, None] * self.factor
"""


class TestUsersFile:
    def test_a_part_from_a_path(self, tmp_path):
        file = tmp_path / "mine.py"
        file.write_text(USERS_PART)
        part = build({"part": f"{file}:Mine", "factor": 3.0})
        e = po.Experience(mask=torch.ones(1, 2, dtype=torch.bool), reward=torch.ones(1))
        assert part(e).tolist() == [[3.0, 3.0]]
        text = po.Algorithm(credit=part).to_yaml()
        again = po.from_yaml(text)
        assert type(again.credit) is type(part)
        assert again.credit.factor == 3.0
        # And in a process that has never seen the file.
        code = f"import polopt as po; print(po.from_yaml({text!r}).credit.factor)"
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        assert out.strip() == "3.0"

    def test_an_unknown_class_in_it(self, tmp_path):
        file = tmp_path / "mine2.py"
        file.write_text(USERS_PART)
        with pytest.raises(ValueError, match="did you mean 'Mine'"):
            build({"part": f"{file}:Mina"})

    def test_a_file_that_fails_fails_every_time(self, tmp_path):
        file = tmp_path / "broken.py"
        file.write_text(USERS_PART + "\nraise RuntimeError('my own mistake')\n")
        n = USERS_PART.count("\n") + 2
        for _ in range(2):
            with pytest.raises(
                NameNotFound, match=rf"cannot be loaded: RuntimeError: my own mistake \(broken.py, line {n}\)"
            ):
                build({"part": f"{file}:Mine"})


class TestYaml:
    @pytest.mark.parametrize(
        "part",
        [
            po.Algorithm(),
            *[po.method(slug) for slug in po.slugs("algorithm")],
            po.Algorithm(
                sampling=Rollouts(
                    support=po.Support(temperature=0.6, top_p=0.9), select=[MixedGroups(), TopK(count=2)]
                ),
                reward=SumOfRewards(terms=[OutcomeReward(), OverlongPenalty(limit=5)], weights=[1, 2]),
                credit=WhitenedAdvantage(credit=GAE()),
                objective=Surrogate(ratio=None, regularise=[ReferenceKL(ratio=TokenRatio())]),
            ),
        ],
        ids=lambda p: type(p.credit).__name__,
    )
    def test_there_and_back(self, part):
        again = po.from_yaml(part.to_yaml())
        assert diff(part, again) == []
        assert again.to_yaml() == part.to_yaml()
        assert again.to_dict() == part.to_dict()
        assert again.sampling.settings().get("support") == part.sampling.settings().get("support")


class NeedsEntropy(po.objectives.SurrogateTerm):
    policy_outputs = frozenset({"entropy"})

    def forward(self, log_ratio, advantage, evaluation):
        return -advantage * evaluation.entropy, torch.zeros_like(advantage)


class Flat(po.objectives.Weight):
    def forward(self, experience, evaluation):
        return torch.ones(len(experience))


class ColumnBaseline(po.credit.Baseline):
    def forward(self, experience, returns):
        return returns[:, None]


class TestTheDoor:
    e = po.Experience(
        mask=torch.ones(3, 3, dtype=torch.bool),
        rollout_logp=torch.zeros(3, 3),
        advantage=torch.ones(3, 3),
        reward=torch.ones(3),
    )

    def test_a_trust_region_too_is_asked_what_it_evaluates(self):
        with pytest.raises(po.ExperienceError, match=r"NeedsEntropy needs evaluation\.entropy of shape \[3, 3\]"):
            Surrogate(trust=NeedsEntropy())(self.e, po.Evaluation(logp=torch.zeros(3, 3)))

    def test_what_would_broadcast_is_refused(self):
        """On a square batch a weight [B] would multiply columns and a baseline [B, 1] make a matrix."""
        with pytest.raises(po.ExperienceError, match=r"Flat must return shape \[3, 3\], found \[3\]"):
            Surrogate(weights=[Flat()], aggregate=TokenMean())(self.e, po.Evaluation(logp=torch.zeros(3, 3)))
        with pytest.raises(po.ExperienceError, match=r"ColumnBaseline must return shape \[3\], found \[3, 1\]"):
            RelativeAdvantage(baseline=ColumnBaseline(), scale=None)(self.e)

    def test_two_regularisers_of_a_kind_keep_two_metrics(self):
        e = self.e.replace(ref_logp=torch.full((3, 3), -1.0))
        objective = Surrogate(regularise=[ReferenceKL(value="k1"), ReferenceKL(value="k2")])
        metrics = objective(e, po.Evaluation(logp=torch.zeros(3, 3))).metrics
        assert metrics["ReferenceKL"].item() == 1.0
        assert metrics["ReferenceKL/2"].item() == 0.5

    def test_a_constant_needs_nothing(self):
        assert ConstantAdvantage(value=2.0)(self.e).tolist() == [[2.0] * 3] * 3
