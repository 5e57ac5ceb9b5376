"""These programs measure what the paper of PPO-max claims."""

import torch

import polopt.methods.secrets_rlhf_ppo_max as module
from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.credit import GAE
from polopt.experience import Experience
from polopt.lab import train
from polopt.lab.demonstrations import overrated
from polopt.methods.ppo import ppo
from polopt.methods.secrets_rlhf_ppo_max import secrets_rlhf_ppo_max
from polopt.rewards import ClippedReward, ScaledReward


def course(algorithm: Algorithm, seed: int) -> tuple[list[float], list[float]]:
    """The true reward while a proxy of it is optimised, and KL(policy || start) in nats."""
    tree, policy, start, truth = overrated(seed)
    away: list[float] = []

    def watch() -> float:
        away.append(tree.kl(policy, start).item())
        return (tree.log_probabilities(policy).exp() * truth).sum(1).mean().item()

    seen = train(
        algorithm, tree, policy, steps=150, rate=20.0, rows=128, epochs=4, seed=seed, reference=start, watch=watch
    )
    return seen, away


def kept(algorithm: Algorithm, seeds: int = 5) -> float:
    """The last true reward as a share of the highest, mean over seeds."""
    found = [course(algorithm, seed)[0] for seed in range(seeds)]
    return sum(seen[-1] / max(seen) for seen in found) / seeds


@claim(
    "With scaling, clipping and KL the truth stays near its peak while a proxy is optimised.",
    kind="headline",
    baseline="PPO without any of it, nor whitening",
    cost="slow",
    refuted=True,
)
def no_collapse() -> Finding:
    bare = ppo(kl=0).but(credit=GAE(cut="zero"))
    found = {"kept": kept(secrets_rlhf_ppo_max(centred=True, reward_clip=0.3, kl=0.5)), "bare PPO": kept(bare)}
    found["as in the script"] = kept(secrets_rlhf_ppo_max())
    found["as in the script, but whitened"] = kept(secrets_rlhf_ppo_max(whiten=True))
    found["clip at 1 and KL, unscaled"] = kept(secrets_rlhf_ppo_max(scale=False, reward_clip=1.0, kl=0.5))
    return Finding(
        measured=found,
        criterion="final over highest true reward: >= 0.9, bare PPO <= 0.7 (5 seeds, 5 % of 64 arms overrated by 10)",
        holds=found["kept"] >= 0.9 and found["bare PPO"] <= 0.7,
        note="Bare PPO falls to 0.73, not to 0.7; the rest holds. The script's own settings, without clip and with a "
        "KL that an answer of one token hardly feels, keep 0.90, and collapse like bare PPO with whitened advantages. "
        "Dividing by a spread that the outliers make buries the rest; clipped unscaled, more is kept.",
    )


@claim("The KL to the start shows the collapse before the truth falls.", kind="part", baseline="the truth itself")
def monitored() -> Finding:
    lead_times = []
    for seed in range(3):
        truth, away = course(ppo(kl=0).but(credit=GAE(cut="zero")), seed)
        best = max(truth)
        fall = next((i for i in range(truth.index(best), len(truth)) if truth[i] < 0.9 * best), len(truth))
        lead_times.append(fall - next(i for i, kl in enumerate(away) if kl > 1))
    return Finding(
        measured={"least steps ahead": float(min(lead_times)), "most": float(max(lead_times))},
        criterion="1 nat is passed before the truth has lost a tenth of its peak, in all 3 runs of bare PPO",
        holds=min(lead_times) > 0,
    )


@claim(
    "The reward is the score in units of all earlier scores, then clipped, and the distance to the reference.",
    kind="identity",
    baseline="the scores as they are, clipped",
)
def scaled() -> Finding:
    generator = torch.Generator().manual_seed(0)
    scores = 3 + 5 * torch.randn(4, 16, generator=generator, dtype=torch.double)
    logp, ref = (-1 - torch.rand(16, 1, generator=generator, dtype=torch.double) for _ in range(2))
    algorithm = secrets_rlhf_ppo_max(centred=True, reward_clip=0.3, kl=0.5)
    off, raw = 0.0, 0.0
    for number, batch in enumerate(scores):
        experience = Experience(
            mask=torch.ones(16, 1, dtype=torch.bool), outcome=batch, rollout_logp=logp, ref_logp=ref
        )
        found = algorithm.reward(experience)[:, 0] + 0.5 * (logp - ref)[:, 0]
        before = scores[:number].flatten()
        unit, centre = (before.std(), before.mean()) if number else (1.0, 0.0)
        off = max(off, (found - ((batch - centre) / unit).clamp(-0.3, 0.3)).abs().max().item())
        raw = max(raw, (found - batch.clamp(-0.3, 0.3)).abs().max().item())
    return Finding(
        measured={"largest error": off, "of scores as they are": raw},
        criterion="< 1e-12 in 4 batches; the scores as they are, clipped, more than 0.1 off",
        holds=off < 1e-12 and raw > 0.1,
    )


@mutation("Scores are clipped before they are scaled.", kills=scaled)
def clipped_first(replace: Replace) -> None:
    replace(module, "ScaledReward", lambda reward, centred: ClippedReward(reward=reward, limit=0.3))
    replace(module, "ClippedReward", lambda reward, limit: ScaledReward(reward=reward, centred=True))


@mutation("Scores are divided, but their mean is not taken off.", kills=scaled)
def not_centred(replace: Replace) -> None:
    replace(module, "ScaledReward", lambda reward, centred: ScaledReward(reward=reward))
