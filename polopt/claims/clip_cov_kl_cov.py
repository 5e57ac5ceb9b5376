"""These programs measure what the paper of Clip-Cov and KL-Cov claims."""

import math

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab.entropies import (
    EntropyLeft,
    correlation,
    entropy_after,
    entropy_kept,
    learning_curve,
    questions,
    softmaxes,
)
from polopt.methods import clip_cov_kl_cov as sentence
from polopt.methods.clip_cov_kl_cov import ClipCov, KLCov, clip_cov_kl_cov
from polopt.metrics import entropy_law, entropy_shift


@claim(
    "A small step of the logits changes the entropy by -Cov(log pi, step), for the natural and the vanilla gradient.",
    kind="theory",
    baseline="the same identity at steps 100 times as long",
)
def identity() -> Finding:
    logits, advantage = softmaxes(200, 20), softmaxes(200, 20, seed=1)
    logp = logits.log_softmax(-1)
    advantage = advantage - (logp.exp() * advantage).sum(-1, keepdim=True)

    def error(step: torch.Tensor) -> float:
        true = entropy_after(logits, step)
        return ((entropy_shift(logp, step) - true).norm() / true.norm()).item()

    vanilla = logp.exp() * advantage
    measured = {
        "natural, eta 1e-3": error(1e-3 * advantage),
        "vanilla, eta 1e-2": error(1e-2 * vanilla),
        "natural, eta 1e-1": error(1e-1 * advantage),
        "vanilla, eta 1": error(vanilla),
    }
    small, large = list(measured.values())[:2], list(measured.values())[2:]
    return Finding(
        measured=measured,
        criterion="relative error of all changes < 0.01 at small steps, > 0.03 at large ones",
        holds=max(small) < 0.01 and min(large) > 0.03,
    )


@claim(
    "At 0.95 success more entropy is left if 10 % of the samples are stopped, drawn among those of covariance 1 to 5.",
    kind="headline",
    baseline="no sample stopped; 10 % stopped at random",
)
def clip_keeps_entropy() -> Finding:
    none, clip = _kept(clip_cov_kl_cov(group=16, share=0.0)), _kept(clip_cov_kl_cov(group=16, share=0.1))
    random = _kept(clip_cov_kl_cov(group=16, share=0.1, least=-math.inf, most=math.inf))
    return Finding(
        measured={"entropy": clip.then, "none stopped": none.then, "at random": random.then},
        criterion="> 1.1x both; all reach 0.95",
        holds=clip.then > 1.1 * max(none.then, random.then) and none.reached and clip.reached and random.reached,
    )


@claim(
    "At 0.95 success more entropy is left if the 10 % of highest covariance are penalised, two steps a batch.",
    kind="headline",
    baseline="no penalty",
)
def kl_keeps_entropy() -> Finding:
    free, kl = (_kept(clip_cov_kl_cov(variant="kl", group=16, percent=percent), epochs=2) for percent in (0.0, 10.0))
    return Finding(
        measured={"entropy": kl.then, "no penalty": free.then},
        criterion="> 1.1x; both reach 0.95",
        holds=kl.then > 1.1 * free.then and free.reached and kl.reached,
    )


@claim(
    "When learning is over, entropy is at least twice as high with KL-Cov, at nearly equal success.",
    kind="headline",
    baseline="no penalty, and Clip-Cov",
    cost="slow",
)
def to_the_end() -> Finding:
    free, kl, every = (
        _kept(clip_cov_kl_cov(variant="kl", group=16, percent=percent), steps=300, epochs=4)
        for percent in (0.0, 10.0, 100.0)
    )
    none, clip = (_kept(clip_cov_kl_cov(group=16, share=share), steps=300) for share in (0.0, 0.1))
    return Finding(
        measured={
            "no penalty": free.last,
            "kl on 10 %": kl.last,
            "kl on all": every.last,
            "success without penalty": free.success,
            "success with kl on 10 %": kl.success,
            "success with kl on all": every.success,
            "one step a batch": none.last,
            "clip on 10 %": clip.last,
        },
        criterion="kl on 10 % >= 2x no penalty, success within 0.005",
        holds=kl.last >= 2 * free.last and kl.success > free.success - 0.005,
        note="Clip-Cov lets most samples of high covariance pass: it slows the fall and does not end it.",
    )


def _kept(algorithm: Algorithm, steps: int = 80, epochs: int = 1) -> EntropyLeft:
    unfiltered = algorithm.but(**{"sampling.select": []})
    return entropy_kept(unfiltered, questions(), success=0.95, steps=steps, rate=8.0 / epochs, epochs=epochs, seeds=4)


def _run() -> tuple[list[float], list[float]]:
    """Rewards and entropies of a run in which nothing is held back."""
    plain = clip_cov_kl_cov(group=16, share=0.0).but(**{"sampling.select": []})
    return learning_curve(plain, questions(), steps=150, rate=8.0)


@claim("Reward is paid for with entropy: R = b - a e^H fits a run.", kind="part", baseline="a straight line in H")
def law() -> Finding:
    rewards, entropies = _run()
    found = entropy_law(entropies, rewards)
    line = correlation(torch.tensor(entropies), torch.tensor(rewards)) ** 2
    return Finding(
        measured={"R squared": found.fit, "straight line": line, "ceiling": found.ceiling, "reached": rewards[-1]},
        criterion="R squared > 0.98, and above the line's",
        holds=found.fit > 0.98 and found.fit > line,
    )


@claim(
    "The law fitted to a run's beginning tells its ceiling.",
    kind="part",
    baseline="the reward that was reached",
    refuted=True,
)
def predicts() -> Finding:
    rewards, entropies = _run()
    half = next(i for i, reward in enumerate(rewards) if 2 * reward >= rewards[0] + rewards[-1])
    found = entropy_law(entropies[:half], rewards[:half])
    return Finding(
        measured={"ceiling": found.ceiling, "reached": rewards[-1], "batches fitted": float(half)},
        criterion="within 0.05 of what is reached, fitted to the first half of the gain",
        holds=abs(found.ceiling - rewards[-1]) < 0.05,
        note="From the uniform policy entropy falls late: the first half of the gain is cheaper than the law says, and "
        "its ceiling lies above 1, which no success rate reaches. The paper fits runs of pre-trained language models.",
    )


@claim(
    "Held back are tokens whose covariance lies between the bounds, or the highest ones of all.",
    kind="identity",
    baseline="the products of advantage and log-probability, not centred",
)
def selected() -> Finding:
    draw = torch.Generator().manual_seed(0)
    advantage = torch.randn(20, 1, generator=draw, dtype=torch.double).expand(20, 30)
    logp = -2 * torch.rand(20, 30, generator=draw, dtype=torch.double).sqrt() - 0.5
    mask = torch.arange(30) < torch.randint(10, 31, (20, 1), generator=draw)
    batch = Experience(mask=mask, rollout_logp=logp, advantage=advantage)
    batch = batch.replace(full_batch_evaluation=Evaluation(logp=logp))
    pairs = list(zip(advantage[mask].tolist(), logp[mask].tolist(), strict=True))
    means = [sum(x) / len(pairs) for x in zip(*pairs, strict=True)]
    cov = [(a - means[0]) * (x - means[1]) for a, x in pairs]
    between = {i for i, c in enumerate(cov) if 0.5 < c < 1}
    count = int(0.1 * len(cov))
    top = set(sorted(range(len(cov)), key=lambda i: -cov[i])[:count])
    plain = set(sorted(range(len(cov)), key=lambda i: -pairs[i][0] * pairs[i][1])[:count])
    clip, kl = (
        set(chosen[mask].nonzero().flatten().tolist())
        for chosen in (
            ClipCov(share=0.02, least=0.5, most=1.0).stopped(batch),
            KLCov(percent=10.0).penalised(batch),
        )
    )
    drawn, asked = len(clip), int(0.02 * len(cov))
    return Finding(
        measured={
            "stopped": drawn,
            "of which outside the bounds": len(clip - between),
            "penalised, not among the highest": len(kl ^ top),
            "of the highest, not centred": len(plain ^ top),
        },
        criterion=f"{asked} stopped of {len(between)} between the bounds, none outside; the highest {count} penalised, "
        "which are not those of the products",
        holds=drawn == asked and not clip - between and kl == top != plain,
    )


@mutation("Log-probabilities are not centred.", kills=selected)
def not_centred(replace: Replace) -> None:
    def covariances(advantage: Tensor, logp: Tensor, mask: Tensor) -> Tensor:
        return (advantage - advantage[mask].mean()) * logp

    replace(sentence, "covariances", covariances)


@mutation("Clip-Cov draws among all tokens, whatever their covariance.", kills=selected)
def drawn_among_all(replace: Replace) -> None:
    stopped = ClipCov.stopped
    replace(ClipCov, "stopped", lambda self, batch: stopped(self.but(least=-math.inf, most=math.inf), batch))


@mutation("KL-Cov penalises the tokens of lowest covariance.", kills=selected)
def lowest_first(replace: Replace) -> None:
    penalised = KLCov.penalised

    def lowest(self: KLCov, batch: Experience) -> Tensor:
        return penalised(self, batch.replace(advantage=-batch.advantage))

    replace(KLCov, "penalised", lowest)
