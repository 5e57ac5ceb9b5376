"""Credit that knows how sure the policy was, against its definitions written out row by row."""

from __future__ import annotations

import collections
import itertools
import math
import statistics

import pytest
import torch
from batches import random_batch

import polopt as po
from polopt.credit import GAE, ConstantAdvantage, ModulatedAdvantage, RelativeAdvantage
from polopt.features.rows import Confidence, DecisionCount
from polopt.methods.empg import CentredAdvantage, TurnCertainty
from polopt.methods.progrpo import RelativeSurprisal
from polopt.methods.seed_grpo import SemanticEntropy, UncertaintyDecay, canonical

SEEDS = range(6)


def decided(e: po.Experience, field: str) -> list[list[float]]:
    """A field's values at each row's decisions."""
    values = getattr(e, field)
    return [[values[i, t].item() for t in range(e.mask.shape[1]) if e.mask[i, t]] for i in range(len(e))]


def groups(e: po.Experience) -> list[list[int]]:
    found = collections.defaultdict(list)
    for i, g in enumerate(e.group.tolist()):
        found[g].append(i)
    return list(found.values())


def check(
    credit: po.credit.Credit, e: po.Experience, expected: dict[tuple[int, int], float], rel: float = 1e-9
) -> None:
    """rel: 1e-6 where a length or a constant, which are float32, enters."""
    found = credit(e)
    for (i, t), value in expected.items():
        assert found[i, t].item() == pytest.approx(value, rel=rel, abs=1e-3 * rel), (i, t)
    assert len(expected) == int(e.mask.sum())


def places(e: po.Experience) -> list[tuple[int, int]]:
    return [(i, t) for i, t in itertools.product(range(len(e)), range(e.mask.shape[1])) if e.mask[i, t]]


# Semantic entropy -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("weigh", ["length", "sequence", "count"])
def test_semantic_entropy(seed, weigh):
    e = random_batch(seed, B=18).experience
    found = SemanticEntropy(weigh=weigh)(e).tolist()
    logp, answers = decided(e, "rollout_logp"), e.extras["answer"]
    power = {"length": lambda x: sum(x) / max(1, len(x)), "sequence": sum, "count": lambda x: 0.0}[weigh]
    for rows in groups(e):
        mass = collections.defaultdict(float)
        for i in rows:
            mass[answers[i]] += math.exp(power(logp[i]))
        entropy = -statistics.fmean(math.log(m / sum(mass.values())) for m in mass.values())
        for i in rows:
            assert found[i] == pytest.approx(entropy / math.log(len(rows)) if len(rows) > 1 else 0.0, abs=1e-12)


def test_semantic_entropy_of_answers_beyond_the_range_of_exp():
    e = po.Experience(
        mask=torch.ones(3, 2, dtype=torch.bool),
        rollout_logp=torch.tensor([[-900.0, -900.0], [-900.0, -901.0], [-2000.0, -1.0]]),
        group=torch.zeros(3, dtype=torch.long),
        extras={"answer": ["a", "b", "b"]},
    )
    # Against the likeliest, log-weights are 0 and -1 (and -201): p = 1 / (1 + 1/e) and its rest.
    p = 1 / (1 + math.exp(-1))
    found = SemanticEntropy(weigh="sequence")(e)
    assert found.tolist() == pytest.approx([-(math.log(p) + math.log(1 - p)) / 2 / math.log(3)] * 3)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("7.50", "7.5"),
        ("+7.5", " 7.5\n"),
        ("1,000", "1000"),
        (".5", "0.5"),
        ("4.", "4.0"),
        ("The  Cat.", "the cat"),
        ("-0", "0"),
        ("007", "7"),
        ("1/2", "0.5"),
        ("-6 / 4", "-1.5"),
    ],
)
def test_one_canonical_form(left, right):
    assert canonical(left) == canonical(right)


@pytest.mark.parametrize(("left", "right"), [("1,00", "100"), ("-3", "3"), ("a b", "ab"), ("", "0"), ("1/0", "0")])
def test_different_canonical_forms(left, right):
    assert canonical(left) != canonical(right)


def test_the_final_answer_inside_a_text():
    pattern = r"<answer>(.*?)</answer>"
    text = "first <answer>3</answer>, no:\n<answer>\n4.0 </answer> it is"
    assert canonical(text, pattern) == canonical("4")
    assert canonical("no tags", pattern) == "no tags"
    assert canonical("so 12 and 13", r"[0-9]+") == "13"
    with pytest.raises(ValueError, match="no regular expression"):
        SemanticEntropy(pattern="(")


# Signals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "f"),
    [
        ("linear", lambda z: max(0.0, 1 - z)),
        ("exponential", lambda z: math.exp(-z)),
        ("focal", lambda z: max(0.0, 1 - z) ** 3),
    ],
)
def test_faded(shape, f):
    e = random_batch(0).experience
    part = ModulatedAdvantage(
        credit=GAE(), times=UncertaintyDecay(by=DecisionCount(), strength=0.2, shape=shape, power=3.0)
    )
    plain, n = GAE()(e), e.lengths.tolist()
    assert max(n) > 5  # so that 0.2 n passes 1
    check(part, e, {(i, t): plain[i, t].item() * f(0.2 * n[i]) for i, t in places(e)}, rel=1e-6)


def turn_entropy(e: po.Experience) -> dict[tuple[int, int], float]:
    """Mean entropy of each (row, turn)."""
    values = collections.defaultdict(list)
    for i, t in places(e):
        values[i, int(e.turn[i, t])].append(e.entropy[i, t].item())
    return {key: statistics.fmean(v) for key, v in values.items()}


@pytest.mark.parametrize("seed", SEEDS)
def test_clarity(seed):
    e = random_batch(seed).experience
    e = e.replace(turn=5 - e.turn + 3)  # turns that do not begin at 0 and go down, so the next in order stands before
    H = turn_entropy(e)
    low, high = min(H.values()), max(H.values())
    clear = {key: math.exp(-1.7 * (h - low) / (high - low + 1e-8)) for key, h in H.items()}
    mean = statistics.fmean(clear.values())
    ones = ConstantAdvantage()
    own = {(i, t): clear[i, int(e.turn[i, t])] / mean for i, t in places(e)}
    check(ModulatedAdvantage(credit=ones, times=TurnCertainty(sharpness=1.7)), e, own, rel=1e-6)

    def following(i: int, turn: int) -> float:
        later = [h for row, h in clear if row == i and h > turn]
        return 0.3 * clear[i, min(later)] if later else 0.0

    ahead = {(i, t): 1 + following(i, int(e.turn[i, t])) for i, t in places(e)}
    check(
        ModulatedAdvantage(credit=ones, plus=TurnCertainty(sharpness=1.7, turn="next", weight=0.3)), e, ahead, rel=1e-6
    )
    assert any(v > 1 for v in ahead.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_centred(seed):
    e = random_batch(seed).experience
    plain = GAE()(e)
    by_turn = collections.defaultdict(list)
    for i, t in places(e):
        by_turn[i, int(e.turn[i, t])].append(plain[i, t].item())
    means = {"token": statistics.fmean(plain[e.mask].tolist())}
    means["turn"] = statistics.fmean(statistics.fmean(v) for v in by_turn.values())
    for unit, mean in means.items():
        check(CentredAdvantage(credit=GAE(), unit=unit), e, {(i, t): plain[i, t].item() - mean for i, t in places(e)})
    assert CentredAdvantage(credit=ConstantAdvantage(value=0.1))(e).count_nonzero() == 0


@pytest.mark.parametrize("share", [0.01, 0.4, 1.0])
def test_confidence(share):
    e = random_batch(3).experience
    for row, found in zip(decided(e, "rollout_logp"), Confidence(share=share)(e).tolist(), strict=True):
        low = sorted(row)[: max(1, round(share * len(row)))]
        assert found == pytest.approx(math.exp(statistics.fmean(low)) if row else 1.0, rel=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("than", ["prompt", "group"])
def test_surprise(seed, than):
    e = random_batch(seed).experience
    base, plain = RelativeAdvantage(), RelativeAdvantage()(e)
    sure = Confidence(share=0.3)(e).tolist()
    bonus = {}
    for rows in groups(e):
        solved = any(e.outcome[i] >= 1 for i in rows)
        mean = statistics.fmean(sure[i] for i in rows)
        for i in rows:
            expected = math.exp(e.extras["prompt_logp"][i].item()) if than == "prompt" else mean
            bonus[i] = 0.6 * (expected - sure[i]) if solved else 0.0
    signal = RelativeSurprisal(weight=0.6, of=Confidence(share=0.3), than=than)
    check(
        ModulatedAdvantage(credit=base, plus=signal), e, {(i, t): plain[i, t].item() + bonus[i] for i, t in places(e)}
    )
    most = {(i, t): 0.5 * abs(plain[i, t].item()) for i, t in places(e)}
    cut = {(i, t): plain[i, t].item() + max(-m, min(m, bonus[i])) for (i, t), m in most.items()}
    check(ModulatedAdvantage(credit=base, plus=signal, limit=0.5), e, cut)


def test_surprise_needs_the_prompt_only_where_it_reads_it():
    e = random_batch(0).experience
    e = po.Experience(**{k: getattr(e, k) for k in ("mask", "rollout_logp", "group", "outcome", "reward")})
    assert ModulatedAdvantage(credit=RelativeAdvantage(), plus=RelativeSurprisal(than="group"))(e).isfinite().all()
    with pytest.raises(po.ExperienceError, match=r"RelativeSurprisal needs experience.extras\['prompt_logp'\]"):
        ModulatedAdvantage(credit=RelativeAdvantage(), plus=RelativeSurprisal())(e)


@pytest.mark.parametrize(
    ("part", "settings", "text"),
    [
        (UncertaintyDecay, {"by": DecisionCount(), "strength": -1.0}, "strength >= 0"),
        (UncertaintyDecay, {"by": DecisionCount(), "power": 0.0}, "power > 0"),
        (Confidence, {"share": 0.0}, "share must be in"),
        (ModulatedAdvantage, {"credit": GAE(), "limit": -1.0}, "limit must be >= 0"),
    ],
)
def test_settings_out_of_range_are_refused(part, settings, text):
    with pytest.raises(ValueError, match=text):
        part(**settings)
