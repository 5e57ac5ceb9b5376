"""Learners, batches and algorithms for tests of optimiser steps."""

from __future__ import annotations

from typing import Any

import torch
from tiny_runs import Digits, policy
from torch import Tensor

import polopt
from polopt import Algorithm, Experience, Support
from polopt.credit import GAE
from polopt.methods.clip_cov_kl_cov import ClipCov, KLCov
from polopt.methods.hapo import EntropyAdvantage
from polopt.methods.steer import STEERWeight
from polopt.objectives import (
    EntropyBonus,
    LogRatioReward,
    PairedObjective,
    SequenceMean,
    SequenceSum,
    Surrogate,
    TokenMean,
    ValueLoss,
)
from polopt.policies.language import LanguagePolicy
from polopt.sampling.parts import RolloutRequest
from polopt.training.episode_player import EpisodePlayer
from polopt.training.learner import Learner
from polopt.training.source import LanguageSource
from polopt.training.specs import OptimiserSpec, StageSpec

ALGORITHMS = {
    "grpo": polopt.method("grpo", kl=0.0),
    "kl": polopt.method("grpo", kl=0.3),
    "sums": Algorithm(objective=Surrogate(aggregate=SequenceSum())),
    "draw": Algorithm(objective=Surrogate(trust=ClipCov(share=0.1, least=0.0), aggregate=SequenceMean())),
    "highest": Algorithm(objective=Surrogate(trust=KLCov(percent=10.0))),
    "vocabulary": Algorithm(objective=Surrogate(weights=[STEERWeight(score="exact", low=0.1)])),
    "pairs": Algorithm(objective=PairedObjective(implicit=LogRatioReward(scale=2.0))),
    "levels": Algorithm(objective=Surrogate(trust=EntropyAdvantage())),
    "critic": Algorithm(
        credit=GAE(lam=0.9),
        objective=Surrogate(aggregate=TokenMean(), regularise=[ValueLoss(), EntropyBonus(coefficient=0.02)]),
    ),
}


def batch_of(made: LanguagePolicy, rows: int = 12, support: Support = Support()) -> Experience:  # noqa: B008
    player = EpisodePlayer(made, Digits(50), 5)
    # Stop tokens are made likely, so that lengths differ and answers reach the world.
    source = LanguageSource(player, rows=rows, seed=0, generator=torch.Generator().manual_seed(0))
    return source.rollout(RolloutRequest(source.take(rows // 4), 4, support))


def stopping(dtype: str = "float64", critic: bool = False) -> LanguagePolicy:
    made = policy(dtype, critic=critic)
    head = made.model.lm_head
    bias = torch.zeros(head.weight.shape[0], dtype=head.weight.dtype)
    bias[made.tokenizer.eos_token_id] = 4.0
    head.bias = torch.nn.Parameter(bias)
    return made


def learner_of(made: LanguagePolicy, algorithm: Algorithm, steps: int = 10, **stage: Any) -> Learner:
    spec = StageSpec(**({"method": "grpo", "steps": steps, "rows": 12, "optimiser": OptimiserSpec(clip=1e9)} | stage))
    return Learner(made, algorithm, spec, torch.Generator().manual_seed(0))


def prepared(made: LanguagePolicy, algorithm: Algorithm, batch: Experience) -> Experience:
    """With whatever the algorithm reads; the policy has moved since it sampled, so that ratios are not 1."""
    needs = algorithm.required_fields
    reference = made.frozen()
    with torch.no_grad():
        for i, parameter in enumerate(made.parameters()):
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i)))
    batch = learner_of(made, algorithm).assess(batch, needs, {"ref_logp": reference})
    return algorithm.compute_advantages(batch)


def slopes(made: LanguagePolicy) -> list[Tensor]:
    return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in made.parameters()]
