"""Opponents of a language model: whose tokens they are, whole runs, resuming, and where they are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from test_swarm_runs import source_of
from tiny_runs import DIGITS, Stop, StopAt, lines, outcome, policy, recipe

from polopt.config import ConfigError
from polopt.policies.language import LanguagePolicy
from polopt.rewards.judges.parts import Judge, Judgement
from polopt.sampling import AveragedPolicy, PolicyMixture
from polopt.sampling.parts import RolloutRequest
from polopt.support import Support
from polopt.training.launch import resume, train
from polopt.training.source import LanguageSource
from polopt.worlds import GuessNumber

WARMUP = {"method": "sft", "steps": 6, "rows": 16, "optimiser": {"lr": 0.03}}
RL = {"steps": 4, "rows": 16, "minibatches": 2, "micro_rows": 5, "optimiser": {"lr": 0.01}}


def moved(policy: LanguagePolicy, seed: int) -> LanguagePolicy:
    """A copy with other weights."""
    other, g = policy.frozen(), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in other.own_parameters().values():
            p.add_(0.3 * torch.randn(p.shape, generator=g, dtype=p.dtype))
    return other


def language() -> LanguageSource:
    source = source_of(GuessNumber(1, 9, turns=3, size=6), limit=12, rows=24)
    source.player.policies = {"ref_logp": moved(source.player.policy, 1)}
    return source


@pytest.mark.parametrize("share", [0.0, 0.35, 1.0])
@pytest.mark.parametrize("support", [Support(), Support(temperature=0.6)], ids=str)
def test_tokens_of_several_turns_are_the_mixtures(share: float, support: Support) -> None:
    """Log-probabilities are those of both policies' whole distributions, from passes that know nothing of sampling."""
    source = language()
    mixture = PolicyMixture("reference", share)
    batch = source.rollout(RolloutRequest(source.take(4), 6, support, mixture=mixture))
    assert (batch.turn.amax(1) > 0).any()
    with torch.no_grad():
        plain, two = batch.replace(support=Support()), (source.player.policy, source.player.policies["ref_logp"])
        logs = [p.evaluate(plain, {"logits"}).logits.log_softmax(-1) for p in two]
    mixed = (((1 - share) * logs[0] + share * logs[1]) / support.temperature).log_softmax(-1)
    logp = mixed.gather(-1, batch.extras["tokens"].clamp(min=0)[..., None])[..., 0]
    torch.testing.assert_close(batch.rollout_logp[batch.mask], logp[batch.mask], rtol=0, atol=1e-9)


def test_both_forward_passes_sample_alike() -> None:
    """The decoder's mixture draws what that of transformers' own forward pass draws."""
    mixture, found = PolicyMixture("reference", 0.5), []
    for plain in (False, True):
        source = language()
        if plain:
            for one in (source.player.policy, *source.player.policies.values()):
                one._decoder = None
            assert source.player.policy.decoder is None
        batch = source.rollout(RolloutRequest(torch.arange(4), 5, mixture=mixture))
        found.append((batch.extras["tokens"], batch.rollout_logp))
    assert torch.equal(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1], found[1][1], rtol=0, atol=1e-9)


def test_self_play_draws_as_the_policy_does() -> None:
    first, second = language(), language()
    plain = first.rollout(RolloutRequest(torch.arange(4), 5))
    mixed = second.rollout(RolloutRequest(torch.arange(4), 5, mixture=PolicyMixture("reference", 0.0)))
    assert torch.equal(plain.extras["tokens"], mixed.extras["tokens"])
    assert torch.equal(plain.rollout_logp, mixed.rollout_logp)


def test_another_vocabulary_is_refused() -> None:
    source = language()
    other = policy("float64", world=GuessNumber(1, 9, turns=3, size=6), config={"model_type": "gpt2", **SMALLER})
    other.model.resize_token_embeddings(other.model.config.vocab_size - 3)
    source.player.policies = {"ref_logp": other}
    with pytest.raises(ValueError, match="two policies over the same token ids"):
        source.rollout(RolloutRequest(torch.arange(2), 2, mixture=PolicyMixture("reference", 0.5)))


SMALLER = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 256}


def test_an_average_leaves_the_policy_as_it_was() -> None:
    source = language()
    made = source.player.policy
    before = {name: p.clone() for name, p in made.own_parameters().items()}
    part = AveragedPolicy(decay=0.5)
    part(source, RolloutRequest(torch.arange(2), 2))
    with torch.no_grad():
        for p in made.own_parameters().values():
            p.mul_(1.5)
    rows = part(source, RolloutRequest(torch.arange(4), 5))
    averaged = made.frozen()
    with torch.no_grad():
        for name, p in averaged.own_parameters().items():
            p.copy_(1.25 * before[name])
    logp = averaged.evaluate(rows).logp.detach()
    torch.testing.assert_close(rows.rollout_logp[rows.mask], logp[rows.mask], rtol=0, atol=1e-9)
    for name, p in made.own_parameters().items():
        assert torch.equal(p, 1.5 * before[name])


class Longer(Judge):
    """Prefers the longer answer, whichever is first."""

    compares = True

    def forward(self, prompts: Any, answers: Any, references: Any) -> Judgement:
        scores = [0.5 + 0.5 * ((len(a) > len(b)) - (len(a) < len(b))) for a, b in zip(answers, references, strict=True)]
        return Judgement(torch.tensor(scores, dtype=torch.float64), [{}] * len(scores))


METHODS: dict[str, dict[str, Any]] = {
    "mixture": {"name": "nash-md", "tau": 0.02, "mixture": 0.4},
    "several": {"name": "nash-md", "tau": 0.02, "group": 4, "opponents": 2},
    "scheduled": {"name": "nash-md", "mixture": {"part": "schedules.Schedule", "knots": [[0, 0.9], [4, 0.1]]}},
    "judged": {
        "name": "nash-md",
        "preference": {
            "part": "rewards.JudgedPreference",
            "judge": {"part": f"{Path(__file__).resolve()}:Longer"},
        },
    },
    "average": {"name": "nash-md", "opponent": "average", "decay": 0.5},
    "self-play": {"name": "nash-md", "mixture": 0.0, "tau": 0.0},
    "queue": {"name": "spo-self-play", "group": 2, "queue": 3, "kl": 0.01},
}


@pytest.mark.parametrize("name", METHODS)
def test_runs_resume_bit_for_bit(name: str, tmp_path: Path) -> None:
    tasks = {**DIGITS, "size": 12}  # prompts return, so that queues fill
    settings = recipe(stages={"warmup": WARMUP, "rl": {**RL, "method": METHODS[name]}}, checkpoint=2, tasks=tasks)
    train(settings, tmp_path / "through")
    with pytest.raises(Stop):
        train(settings, tmp_path / "stopped", watchers=(StopAt(8),))
    resume(tmp_path / "stopped")
    assert outcome(tmp_path / "through") == outcome(tmp_path / "stopped")
    records = lines(tmp_path / "through", "metrics")[6:]
    assert all(record["rows"] == 16 for record in records)
    if name == "queue":
        assert records[0]["opponents/mean"] == 0
        assert records[-1]["opponents/mean"] > 1
        state = load_file(sorted((tmp_path / "through" / "checkpoints").iterdir())[-1] / "state.safetensors")
        assert "algorithm.sampling.mix.0.queue.0/extras/tokens" in state
    if name == "average":
        state = load_file(sorted((tmp_path / "through" / "checkpoints").iterdir())[-1] / "state.safetensors")
        assert "algorithm.sampling.mix.0.policy.average.0" in state


OTHER = "ReferenceMixture samples from another policy than the learner"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"rollout": {"engine": "vllm"}}, f"{OTHER}, and vLLM has the learner's weights alone"),
        ({"cluster": {"workers": 1}}, f"{OTHER}, .*the recipe has cluster"),
        ({"parallel": "fsdp"}, f"{OTHER}, .*the recipe has parallel: fsdp"),
    ],
    ids=["vllm", "cluster", "fsdp"],
)
def test_where_only_the_learners_weights_are(setting: dict[str, Any], message: str) -> None:
    made = recipe(stages={"rl": {**RL, "method": "nash-md"}}, **setting)
    with pytest.raises(ConfigError, match=f"stages.rl: .*{message}"):
        _ = made.algorithms
    alone = recipe(stages={"rl": {**RL, "method": {"name": "nash-md", "mixture": 0.0}}}, **setting)
    assert alone.algorithms


@pytest.mark.parametrize(
    ("but", "message"),
    [
        ({"sampling.mix": []}, "rewards.WinRate compares answers with an opponent's, and nothing samples any"),
        ({"sampling.mix.0.policy.anchor": "judge"}, "reads extras.judge_logp, and the stage names no policy judge"),
        ({"sampling.mix.0.count": 0}, "count must be >= 1, found 0"),
    ],
)
def test_refused_before_training(but: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        train(recipe(stages={"rl": {**RL, "method": "nash-md", "but": but}}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_named_policy_is_mixed_with(tmp_path: Path) -> None:
    stages = {
        "warmup": WARMUP,
        "rl": {
            **RL,
            "method": {"name": "nash-md", "tau": 0.0},
            "but": {"sampling.mix.0.policy.anchor": "start"},
            "policies": {"start": "initial"},
        },
    }
    train(recipe(stages=stages), tmp_path / "run")
    assert len(lines(tmp_path / "run", "metrics")) == 10
