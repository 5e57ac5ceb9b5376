"""Methods in TRL's trainer, against polopt's own policy and against TRL's own loss."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch

pytest.importorskip("trl", minversion="1.16")

from trl_world import Gradients, Seen, data, digits, expected, same, trainer

import polopt as po
from polopt.bridges.capabilities import BridgeError
from polopt.objectives import Clip, Surrogate, TokenMean
from polopt.rewards import OutcomeReward


@pytest.fixture(autouse=True, scope="module")
def quick():
    """The trainer collects garbage when it begins, among all that TRL imports."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def first_step(path: Path, method, **settings):
    """What was seen, the trainer, and the gradient of its first optimiser step."""
    seen, gradients = Seen(), Gradients()
    settings = {"reward_funcs": seen, "callbacks": [gradients.callback], "max_grad_norm": 0.0, **settings}
    made = trainer(path, method, **settings)
    made.train()
    return seen.rows, made, gradients.found


# A mean over rows with a reference, a filter and a mean over tokens, a constant length, a statistic of the whole batch
# under the current policy, selection after credit by entropy, a buffer, ratios of rows, a penalty inside the reward, a
# critic, a function of all choices, the prompts' own probability.
METHODS = [
    "grpo",
    "dapo",
    "dr-grpo",
    "bapo-clip",
    "d3s",
    "reinforce-baseline",
    "gspo",
    "rloo",
    "ppo",
    "rover",
    "progrpo",
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("rows", "accumulated"), [(16, 1), (2, 8)])
def test_a_split_changes_nothing(method: str, rows: int, accumulated: int, tmp_path: Path) -> None:
    """The gradient that reaches the optimiser is that of all rows in one batch, by polopt's own policy."""
    split = {"per_device_train_batch_size": rows, "gradient_accumulation_steps": accumulated}
    rows, _, (found,) = first_step(tmp_path, method, **split)
    algorithm = po.method(method).but({"sampling.group": 4})
    assert len({len(row["ids"]) for row in rows}) > 1
    wanted = expected(algorithm, rows, group=4, horizon=6)
    same(found, wanted)


def test_the_logged_loss_is_that_of_the_whole(tmp_path: Path) -> None:
    logged = []
    for rows, accumulated in ((16, 1), (2, 8)):
        split = {"per_device_train_batch_size": rows, "gradient_accumulation_steps": accumulated}
        _, made, _ = first_step(tmp_path, "ppo", **split)
        logged.append({k: v for k, v in made.state.log_history[0].items() if k.startswith("polopt/") or k == "loss"})
    assert logged[0]["loss"] > 0.01
    assert logged[0] == pytest.approx(logged[1], rel=1e-4)


@pytest.mark.parametrize(("window", "steps"), [(2, 4), (8, 2)])
def test_generations_and_optimiser_batches_of_different_sizes(window: int, steps: int, tmp_path: Path) -> None:
    """Two optimiser batches of a generation, credited together; or more micro-batches than TRL would generate for."""
    settings = {"gradient_accumulation_steps": window, "steps_per_generation": steps, "per_device_train_batch_size": 2}
    rows, made, found = first_step(tmp_path, "dr-grpo", max_steps=2, learning_rate=0.0, **settings)
    algorithm = po.method("dr-grpo").but({"sampling.group": 4})
    if window > steps:
        assert made.args.steps_per_generation == 8
        assert "generated at once" in made.notes[0]
        same(found[0], expected(algorithm, rows[:16], group=4, horizon=6))
        same(found[1], expected(algorithm, rows[16:], group=4, horizon=6))
    else:
        # Its rows are each in one of two optimiser batches of four, so the two halves add up to twice the whole.
        both = {name: (found[0][name] + found[1][name]) / 2 for name in found[0]}
        same(both, expected(algorithm, rows, group=4, horizon=6))


# TRL's own losses -----------------------------------------------------------------------------------------------

EPS = {"credit.scale.eps": 1e-4}  # TRL's, behind the standard deviation
SEQUENCE = {"importance_sampling_level": "sequence"}
ALIKE = {
    "grpo": ("grpo", EPS, {"loss_type": "grpo", "use_bias_correction_kl": False}),
    "dr_grpo": ("dr-grpo", {}, {"loss_type": "dr_grpo", "scale_rewards": "none"}),
    "dapo": (
        "dapo",
        {**EPS, "sampling.select": [], "sampling.refills": 0, "reward": OutcomeReward()},
        {"loss_type": "dapo", "epsilon_high": 0.28},
    ),
    "cispo": ("cispo", EPS, {"loss_type": "cispo", "epsilon_high": 5.0}),
    "gspo": ("gspo", EPS, {"loss_type": "grpo", "epsilon_low": 3e-4, "epsilon_high": 4e-4, **SEQUENCE}),
    "luspo": ("luspo", EPS, {"loss_type": "luspo", "epsilon_low": 2e-3, "epsilon_high": 2.5e-3, **SEQUENCE}),
}
Found = tuple[torch.Tensor, dict[str, torch.Tensor]]


def both(path: Path, method, theirs: dict, **settings) -> tuple[Found, Found]:
    """Loss and gradient of an optimiser batch that the policy has moved away from: polopt's, and TRL's with TRL's own
    advantages, by the losses of one trainer on the same rows."""
    made = trainer(path, method, num_iterations=2, **settings)
    for name, value in theirs.items():
        setattr(made.args if hasattr(made.args, name) and not hasattr(made, name) else made, name, value)
    steps, model = made.args.gradient_accumulation_steps, made.model.train()
    made.current_gradient_accumulation_steps = steps
    made._prepare_inputs([row for row in made.train_dataset.select(range(4)) for _ in range(4)])
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.02 * float(parameter.std()))
    assert len({int(n) for piece in made._buffered_inputs for n in piece["completion_mask"].sum(1)}) > 1
    from trl import GRPOTrainer

    found = []
    for owner in (type(made), GRPOTrainer):
        model.zero_grad()
        total = torch.zeros(())
        for step, piece in enumerate(made._buffered_inputs):
            made._step = step
            loss = owner._compute_loss(made, model, piece)
            loss.backward()
            total = total + loss.detach()
        found.append((total, {n: p.grad.clone() for n, p in model.named_parameters()}))
    return found[0], found[1]


@pytest.mark.parametrize("name", ALIKE)
@pytest.mark.parametrize("accumulated", [1, 2])
def test_where_trl_names_the_same_method_loss_and_gradient_are_the_same(
    name: str, accumulated: int, tmp_path: Path
) -> None:
    method, changes, theirs = ALIKE[name]
    split = {"gradient_accumulation_steps": accumulated, "per_device_train_batch_size": 16 // accumulated}
    ours, trls = both(tmp_path, po.method(method).but(changes), theirs, **split)
    torch.testing.assert_close(ours[0], trls[0], rtol=1e-4, atol=1e-6)
    same(ours[1], trls[1])


def test_the_ratio_that_trl_puts_on_the_kl_is_a_setting_of_the_penalty(tmp_path: Path) -> None:
    """TRL's default since 1.16. polopt reports the plain estimate as the value, so the gradients are one."""
    weighed = {"objective.regularise.0.ratio": po.objectives.TokenRatio()}
    split = {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 8}
    theirs = {"loss_type": "grpo", "use_bias_correction_kl": True}
    ours, trls = both(tmp_path, po.method("grpo").but({**EPS, **weighed}), theirs, **split)
    same(ours[1], trls[1])


@pytest.mark.parametrize("accumulated", [1, 2])
def test_bnpo_of_trl_is_a_mean_over_the_tokens_of_each_micro_batch(accumulated: int, tmp_path: Path) -> None:
    """Another method than the paper's, and what it is depends on the split."""
    split = {"gradient_accumulation_steps": accumulated, "per_device_train_batch_size": 16 // accumulated}
    tokens = Surrogate(trust=Clip(low=0.2, high=0.2), aggregate=TokenMean())
    algorithm = po.method("grpo", kl=0).but({**EPS, "objective": tokens})
    ours, trls = both(tmp_path, algorithm, {"loss_type": "bnpo"}, **split)
    apart = max(float((ours[1][n] - trls[1][n]).abs().max()) for n in ours[1])
    assert apart < 1e-5 if accumulated == 1 else apart > 1e-3
    paper, trls = both(tmp_path, "bnpo", {"loss_type": "bnpo"}, **split)
    assert max(float((paper[1][n] - trls[1][n]).abs().max()) for n in paper[1]) > 1e-2


# The door -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("gspo", {"loss_type": "grpo"}, "loss_type='grpo'.*gspo defines the loss"),
        ("gspo", {"epsilon": 0.1}, "leave epsilon at its default 0.2"),
        ("gspo", {"top_p": 0.9}, "another distribution"),
        ("gspo", {"generation_kwargs": {"top_p": 0.9}}, "changes top_p"),
        ("gspo", {"beta": 0.04}, "gspo does not have"),
        ("grpo", {"beta": 0.1}, "whose own is \\[0.04\\]"),
        ("gspo", {"gradient_accumulation_steps": 2, "steps_per_generation": 3, "num_generations": 2}, "in the middle"),
        ("tricks-lite-ppo", {}, None),
        ("t-ppo", {}, "sampling.PartialRollouts decides what is sampled"),
        ("g2rpo", {}, "features.SameKind needs extras.kind"),
        ("fapo", {}, "needs extras.signal_flawed"),
        ("gpro", {}, "did you mean 'grpo'"),
        ({"name": "gspo", "hihg": 1.0}, {}, "hihg"),
        ({"name": "tricks-lite-ppo", "support": po.Support(top_p=0.9)}, {}, "whole vocabulary"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_loaded(method, settings, message, tmp_path: Path) -> None:
    if message is None:
        trainer(tmp_path, method, **settings)
        return
    with pytest.raises((BridgeError, ValueError, TypeError), match=message):
        trainer(tmp_path, method, model="nowhere/at-all", **settings)


def test_the_config_follows_the_method_and_stays_as_it_was(tmp_path: Path) -> None:
    cool = po.method("rloo").but({"sampling.support": po.Support(temperature=0.7)})
    made = trainer(tmp_path, cool)
    assert (made.temperature, made.beta, made.algorithm.sampling.group) == (0.7, 0.05, 4)
    assert [note.partition(" =")[0] for note in made.notes[:2]] == ["beta", "temperature"]
    with pytest.raises(BridgeError, match=r"temperature=0\.5"):
        trainer(tmp_path, cool, temperature=0.5)
    assert trainer(tmp_path, "gspo", temperature=0.5).algorithm.sampling.support.temperature == 0.5


def test_a_kind_is_a_column_and_a_signal_is_a_reward_function(tmp_path: Path) -> None:
    def flawed(completion_ids, **others):
        return [float(len(ids) > 5) for ids in completion_ids]

    made = trainer(tmp_path, "fapo", reward_funcs=[digits, flawed], reward_weights=[1.0, 0.0])
    made.train()
    batch = made._batches[True]
    assert torch.equal(batch.extras["signal_flawed"], (batch.lengths > 5).float())
    made = trainer(tmp_path, "g2rpo", train_dataset=data(kind="sum"))
    made.train()
    assert set(made._batches[True].extras["kind"]) == {"sum"}
