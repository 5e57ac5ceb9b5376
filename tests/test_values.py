"""Every method refuses numbers that nothing can be learned from, and names field, rows and position."""

from __future__ import annotations

import math
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import Digits, digits, recipe

import polopt as po
from polopt.fields import ExperienceError
from polopt.lab import ChainSource, GaussianChain
from polopt.training.launch import train
from polopt.values import check_values
from polopt.worlds import TaskSplit
from polopt.worlds.protocol import WorldError

B, T = 8, 5
NAN, INF = math.nan, math.inf


def plain() -> po.Experience:
    """Two groups of four, right and wrong in turn, with NaN wherever nobody decided."""
    mask = torch.arange(T) < torch.tensor([5, 3, 4, 2, 5, 5, 1, 3])[:, None]
    logp = torch.where(mask, -0.5 - torch.rand(B, T, generator=torch.Generator().manual_seed(0)), NAN)
    outcome, group = torch.arange(B) % 2.0, torch.arange(B) // 4
    return po.Experience(
        mask=mask,
        rollout_logp=logp,
        old_logp=logp,
        ref_logp=logp,
        prev_logp=logp,
        outcome=outcome,
        group=group,
        horizon=T,
    )


def spoilt(name: str, value: float) -> po.Experience:
    """The batch with the value in row 5, at position 2 of fields [B, T]."""
    batch = plain()
    field = getattr(batch, name).clone()
    field[(5,) if field.ndim == 1 else (5, 2)] = value
    return batch.replace(**{name: field})


OUTCOMES = [("outcome", value) for value in (NAN, INF, -INF)]
LOGPS = [(n, v) for n in ("rollout_logp", "old_logp", "ref_logp", "prev_logp") for v in (NAN, INF, -INF, 0.3)]


@pytest.mark.parametrize("slug", po.slugs("algorithm"))
def test_every_method_refuses(slug: str) -> None:
    algorithm = po.method(slug)
    for name, value in [*OUTCOMES, *LOGPS]:
        batch = spoilt(name, value)
        where = "row 5" if name == "outcome" else "row 5, position 2"
        sentence = rf"experience\.{name} must be finite.*found {value:g} in {where}; "
        for judge in (algorithm.compute_advantages, algorithm.with_advantages, algorithm.credit):
            with pytest.raises(ExperienceError, match=sentence) as caught:
                judge(algorithm.sampling.mark(batch))
            assert "\n" not in str(caught.value)
    for value in (NAN, INF, -INF, 0.3):
        said = torch.full((B, T), -1.0).index_put((torch.tensor(5), torch.tensor(2)), torch.tensor(value))
        with pytest.raises(ExperienceError, match=rf"evaluation\.logp .* found {value:g} in row 5, position 2"):
            algorithm.objective(plain(), po.Evaluation(logp=said))


@pytest.mark.parametrize("slug", ["grpo", "dapo", "raft", "nft", "gspo"])
def test_what_stands_off_the_mask_does_not_matter(slug: str) -> None:
    algorithm = po.method(slug)
    batch = algorithm.compute_advantages(plain())
    logp = torch.where(batch.mask, torch.full(batch.mask.shape, -1.0), NAN).requires_grad_()
    loss = algorithm.objective(batch, po.Evaluation(logp=logp)).loss
    loss.backward()
    assert loss.isfinite()
    assert logp.grad is not None
    assert logp.grad[batch.mask].isfinite().all()


def test_rounding_above_0_is_a_log_probability() -> None:
    algorithm = po.method("dr-grpo")
    algorithm.compute_advantages(spoilt("rollout_logp", 5e-5))
    with pytest.raises(ExperienceError, match=r"give log-probabilities, not probabilities or losses"):
        algorithm.compute_advantages(spoilt("rollout_logp", 2e-4))
    density = spoilt("rollout_logp", 3.0).replace(support=po.Density())
    assert algorithm.compute_advantages(density).advantage[5, 2] != 0
    with pytest.raises(ExperienceError, match=r"found nan in row 5, position 2"):
        algorithm.compute_advantages(spoilt("rollout_logp", NAN).replace(support=po.Density()))


def test_densities_of_a_narrow_chain_are_above_0_and_learned_from() -> None:
    chain = GaussianChain(2, [0.01, 0.01], [0.5, 0.5])
    source = ChainSource(chain, lambda x: x[:, 0], rows=8)
    algorithm = po.method("grpo", kl=0)
    batch = algorithm.compute_advantages(algorithm.sampling(source))
    assert (batch.rollout_logp > 1).any()
    assert algorithm.objective(batch, chain.evaluate(batch)).loss.isfinite()


def test_all_rows_are_named_and_a_micro_batch_names_those_of_the_whole() -> None:
    batch = plain()
    with pytest.raises(ExperienceError, match=r"found nan in row 2 \(and in rows 3, 7\); correct what computes"):
        po.method("grpo").compute_advantages(batch.replace(outcome=torch.tensor([0, 1, NAN, NAN, 0, 1, 0, NAN])))
    objective, piece = (
        po.method("dr-grpo").objective,
        po.method("dr-grpo").compute_advantages(batch).piece(torch.tensor([6, 4])),
    )
    logp = torch.full((2, T), -1.0)
    logp[1, 3] = NAN
    with pytest.raises(ExperienceError, match=r"^objectives.Surrogate: evaluation.logp .* in row 4, position 3;"):
        objective(piece, po.Evaluation(logp=logp))


def test_what_a_reward_part_returns_is_looked_at() -> None:
    class Root(po.rewards.Reward):
        reads = frozenset({"outcome"})

        def forward(self, experience: po.Experience) -> torch.Tensor:
            return (experience.outcome - 0.5).sqrt()

    shown = {"is_demonstration": torch.arange(B) == 0}
    with pytest.raises(
        ExperienceError, match=r"Root.*experience.reward must be finite, found nan in row 2 \(and in row"
    ):
        po.Algorithm(reward=Root()).compute_advantages(plain().replace(extras=shown))


def test_demonstrations_have_no_sampler() -> None:
    """`logp` means nothing there, whatever it holds."""
    batch = spoilt("rollout_logp", 3.0).replace(extras={"is_demonstration": torch.arange(B) == 5})
    assert (po.method("dr-grpo").compute_advantages(batch).advantage[5] == 1).all()


def test_what_was_right_is_looked_at_again_where_it_changed() -> None:
    """Written into, replaced, or read at other places; an evaluation is not held."""
    batch = plain()
    check_values(batch, "test")
    batch.replace(outcome=batch.outcome + 1).rollout_logp[5, 2] = NAN
    with pytest.raises(ExperienceError, match=r"experience\.rollout_logp .* row 5, position 2"):
        check_values(batch, "test")

    batch = plain()
    check_values(batch, "test")
    check_values(batch.replace(outcome=-batch.outcome), "test")
    with pytest.raises(ExperienceError, match=r"experience\.outcome .* row 0"):
        check_values(batch.replace(outcome=batch.outcome / 0), "test")
    with pytest.raises(ExperienceError, match=r"experience\.rollout_logp .* row 1, position 3"):
        check_values(batch.replace(mask=torch.ones(B, T).bool()), "test")
    batch.mask.fill_(True)
    with pytest.raises(ExperienceError, match=r"experience\.rollout_logp .* row 1, position 3"):
        check_values(batch, "test")

    shown = plain().replace(rollout_logp=torch.full((B, T), NAN), extras={"is_demonstration": torch.ones(B).bool()})
    check_values(shown, "test")
    with pytest.raises(ExperienceError, match=r"experience\.rollout_logp"):
        check_values(shown.replace(extras={"is_demonstration": torch.zeros(B).bool()}), "test")

    said = po.Evaluation(logp=torch.full((B, T), -1.0))
    known, batch = weakref.ref(said.logp), plain()
    check_values(batch, "test", said)
    del said
    assert known() is None


class PaysNaN(Digits):
    def score(self, text: str, task: Any) -> tuple[float, dict[str, Any]]:
        return NAN, {}


def pays_nan(size: int, seed: int) -> TaskSplit:
    return TaskSplit(PaysNaN(size, seed), digits(size, seed).heldout)


def test_a_run_whose_world_pays_nan_ends_with_the_sentence(tmp_path: Path) -> None:
    made = recipe(tasks={"kind": f"{Path(__file__).resolve()}:pays_nan", "size": 100}, limit=40)
    with pytest.raises(WorldError, match=r"task digit/\S+, step 1: .* returned the reward nan; a reward must be"):
        train(made, tmp_path / "run")


def test_what_is_no_evaluation_is_named() -> None:
    batch = po.method("grpo").compute_advantages(plain())
    with pytest.raises(ExperienceError, match=r"needs the policy's log-probabilities as po\.Evaluation\(logp=\.\.\.\)"):
        po.method("grpo").objective(batch, batch.rollout_logp)  # type: ignore[arg-type]
