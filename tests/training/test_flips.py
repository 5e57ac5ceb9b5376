"""Which pairs a loss turns: the objectives' own losses of random policies, closed forms, and a model's numbers."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_runs import policy

import polopt as po
from polopt.config import ConfigError
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.metrics import MetricDataError, RankedPairs
from polopt.objectives import LogRatioReward, SumOfImplicitRewards
from polopt.objectives.implicit import LogProbReward
from polopt.objectives.paired import PairedObjective
from polopt.training.flips import flip_criterion, flips_of, logps_under
from polopt.worlds import PairReader

PAIRS, WIDTH = 200, 6
METHODS: dict[str, dict[str, Any]] = {
    "dpo": {"beta": 0.3},
    "ipo": {"tau": 0.05},
    "simpo": {"beta": 2.0, "gamma": 0.7},
    "slic": {"delta": 1.5},
    "orpo": {},
    "rpo-sft": {"beta": 0.2},
    "spo-selfsup": {"beta": 0.2, "label_smoothing": 0.1},
}


def pairs_under(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Masks and log-probabilities of random answers, [2 PAIRS, WIDTH], the preferred ones first."""
    g = torch.Generator().manual_seed(seed)
    mask = torch.arange(WIDTH) < torch.randint(1, WIDTH + 1, (2 * PAIRS, 1), generator=torch.Generator().manual_seed(0))
    return mask, torch.where(mask, -torch.rand(2 * PAIRS, WIDTH, generator=g, dtype=torch.float64) * 2, 0)


def losses(objective: PairedObjective, mask: torch.Tensor, logp: torch.Tensor, ref: torch.Tensor) -> np.ndarray:
    """The loss of each pair alone, by the objective itself."""
    found = []
    for i in range(PAIRS):
        rows = [i, PAIRS + i]
        one = Experience(
            mask=mask[rows],
            ref_logp=ref[rows],
            outcome=torch.tensor([1.0, 0.0]),
            group=torch.zeros(2, dtype=torch.long),
        )
        found.append(float(objective(one, Evaluation(logp=logp[rows])).loss))
    return np.array(found)


def as_reference(mask: torch.Tensor, ref: torch.Tensor) -> RankedPairs:
    sums, lengths = ref.sum(1), mask.sum(1)
    return RankedPairs(
        ref_chosen_logps=sums[:PAIRS],
        ref_rejected_logps=sums[PAIRS:],
        chosen_length=lengths[:PAIRS],
        rejected_length=lengths[PAIRS:],
    )


@pytest.mark.parametrize("name", METHODS)
def test_a_pair_is_ranked_right_exactly_below_its_flip_loss(name: str) -> None:
    """By the method's own loss of random policies; margins beyond the loss's minimum are left out."""
    method = po.method(name, **METHODS[name])
    (loss,) = (part for part in method.objective.parts() if isinstance(part, PairedObjective))
    mask, ref = pairs_under(1)
    found = flips_of(flip_criterion(name, METHODS[name]), as_reference(mask, ref), range(PAIRS), 0.5, None)
    flip_loss = found.measured.rows["flip_loss"]
    by_sum = found.criterion.ranks_by == "sum"
    for seed in (2, 3):
        _, logp = pairs_under(seed)
        size = logp.sum(1) if by_sum else logp.sum(1) / mask.sum(1)
        right = (size[:PAIRS] >= size[PAIRS:]).numpy()
        known = ~np.isnan(flip_loss)
        lost = losses(loss, mask, logp, ref)
        assert ((lost <= flip_loss + 1e-9) == right)[known].mean() == 1
        assert 20 < right[known].sum() < known.sum()


def test_closed_forms() -> None:
    m = np.array([-8.0, -0.5, 0.0, 3.0])
    pairs = RankedPairs(ref_chosen_logps=m - 10, ref_rejected_logps=np.full(4, -10.0))

    def flip_loss(name: str, **settings: Any) -> np.ndarray:
        return flips_of(flip_criterion(name, settings), pairs, range(4), 0.5, None).measured.rows["flip_loss"]

    np.testing.assert_allclose(flip_loss("dpo", beta=0.3), np.log1p(np.exp(0.3 * m)), atol=1e-12)
    # IPO's target is 1 / (2 tau) = 5: the first pair needs a margin of 8, beyond it, which no loss ensures.
    expected = np.where(-m <= 5, (-m - 5) ** 2, np.nan)
    np.testing.assert_allclose(flip_loss("ipo", tau=0.1), expected, atol=1e-12)
    np.testing.assert_allclose(flip_loss("slic", delta=1.5), 1.5, atol=1e-12)
    lengths = RankedPairs(
        ref_chosen_logps=m - 10, ref_rejected_logps=np.full(4, -10.0), chosen_length=[2] * 4, rejected_length=[3] * 4
    )
    for name, settings, value in (("simpo", {"gamma": 0.7}, math.log1p(math.exp(0.7))), ("orpo", {}, math.log(2))):
        found = flips_of(flip_criterion(name, settings), lengths, range(4), 0.5, None)
        np.testing.assert_allclose(found.measured.rows["flip_loss"], value, atol=1e-12)
        assert found.left_wrong == ()
        assert found.measured.rows["reference_margin"].tolist() == ((m - 10) / 2 + 10 / 3).tolist()
        everywhere = flips_of(found.criterion, lengths, range(4), value + 0.01, None)
        assert everywhere.left_wrong == (0, 1, 2, 3)


def test_the_lines_of_pairs_that_stay_wrong() -> None:
    pairs = RankedPairs(ref_chosen_logps=[-30.0, -12.0, -9.0], ref_rejected_logps=[-10.0, -10.0, -10.0])
    found = flips_of(flip_criterion("dpo"), pairs, (4, 6, 7), 0.5, None)
    # At beta 0.1 the loss 0.5 is the margin -log(e^0.5 - 1) = 0.433: a gap of 2 turns, one of 20 does not.
    assert found.target_margin == pytest.approx(-math.log(math.exp(0.5) - 1), abs=1e-9)
    assert (found.wrong, found.left_wrong) == ((4, 6), (4,))
    record = found.record()
    assert record["pairs"][0] == {
        "line": 4,
        "reference_margin": -20.0,
        "flip_loss": pytest.approx(math.log1p(math.e**-2)),
    }
    assert json.dumps(record)


def test_attenuated_references_share_the_criterion() -> None:
    reward = SumOfImplicitRewards(terms=[LogRatioReward(scale=0.06), LogProbReward(scale=0.04, decisions="sum")])
    assert (reward.ranks_by, reward.reference_scale) == ("sum", 0.06)
    mixed = SumOfImplicitRewards(terms=[LogRatioReward(scale=0.06), LogProbReward(scale=0.04)])
    assert mixed.ranks_by is None
    assert LogRatioReward(anchor="previous").ranks_by is None


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        ("kto", "--objective kto has no loss of given preference pairs"),
        ("grpo", "--objective grpo has no loss of given preference pairs"),
        ("tgdpo", "depends on more than the log-probabilities of policy and reference"),
        ("rebel", "--objective rebel has no loss of given preference pairs"),
        ("nonsense", "nonsense"),
    ],
)
def test_objectives_without_a_criterion_are_refused(method: str, sentence: str) -> None:
    with pytest.raises((ConfigError, ValueError), match=sentence):
        flip_criterion(method)


def test_means_need_lengths() -> None:
    pairs = RankedPairs(ref_chosen_logps=[-3.0], ref_rejected_logps=[-2.0])
    with pytest.raises(MetricDataError, match=r"simpo compares means over tokens: add the columns chosen_length"):
        flips_of(flip_criterion("simpo"), pairs, [1], 0.5, None)


def test_a_models_log_probabilities_are_those_of_its_forward_pass(tmp_path: Path) -> None:
    rows = [
        {"prompt": "even 2 ", "chosen": "it is 4", "rejected": "22"},
        {"prompt": "even 3 or 4 ", "chosen": "0", "rejected": "6!"},
    ]
    file = tmp_path / "pairs.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    tasks = PairReader().read(file)
    model = policy(world=tasks)
    model.save(tmp_path / "model")
    found = logps_under(tmp_path / "model", {1: tasks[0], 2: tasks[1]}, file)
    tokenizer = model.tokenizer
    for i, row in enumerate(rows):
        for side, name in (("chosen", "ref_chosen_logps"), ("rejected", "ref_rejected_logps")):
            ask = [{"role": "user", "content": row["prompt"]}]
            text = tokenizer.apply_chat_template(ask, add_generation_prompt=True, tokenize=False)
            prompt = tokenizer(text, add_special_tokens=False)["input_ids"]
            answer = [*tokenizer(row[side], add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
            with torch.no_grad():
                logits = model.model(input_ids=torch.tensor([prompt + answer])).logits[0].double().log_softmax(-1)
            steps = logits[len(prompt) - 1 : -1].gather(1, torch.tensor(answer)[:, None])
            assert getattr(found, name)[i] == pytest.approx(float(steps.sum()), abs=1e-5)
            assert getattr(found, f"{side}_length")[i] == len(answer)
