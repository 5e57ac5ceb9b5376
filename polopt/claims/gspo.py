"""These programs measure what the paper of GSPO claims."""

from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab import expectation
from polopt.lab.claims import ratio_variance
from polopt.lab.effects import More, effect
from polopt.lab.problems import lengths
from polopt.lab.progress import learned, uneven
from polopt.methods.grpo import grpo
from polopt.methods.gspo import gspo
from polopt.objectives import Clip, SequenceRatio, TokenRatio


@claim("Noise of std 0.2 on each logp of 64 tokens moves the ratio 1/64 as much.", kind="part", baseline="token ratios")
def quiet_ratio() -> Finding:
    ours, token = (
        ratio_variance(SequenceRatio(), tokens=64, noise=0.2),
        ratio_variance(TokenRatio(), tokens=64, noise=0.2),
    )
    return Finding(
        measured={"variance": ours, "of 0.04/64": ours * 64 / 0.04, "token ratios": token},
        criterion="variance within [0.67, 1.5] x 0.04/64; token ratios > 0.03",
        holds=0.67 < ours * 64 / 0.04 < 1.5 and token > 0.03,
    )


@claim("On policy its gradient is GRPO's.", kind="identity", baseline="a policy away, where they part")
def like_grpo() -> Finding:
    tree, policy = lengths()
    old = type(policy)(tree, spread=0.5, seed=2)
    wide = {"objective.trust": Clip(low=1, high=1e9)}
    ours, token = gspo(group=2).but(wide), gspo(group=2).but(wide, **{"objective.ratio": TokenRatio()})
    gap = []
    for behaviour in (policy, old):
        a, b = (expectation(s, tree, policy, behaviour=behaviour).mean for s in (ours, token))
        gap.append(((a - b).norm() / b.norm()).item())
    return Finding(
        measured={"relative distance on policy": gap[0], "off policy": gap[1]},
        criterion="< 1e-10 on policy, > 0.05 off",
        holds=gap[0] < 1e-10 and gap[1] > 0.05,
    )


@effect(
    "From as many answers of eight tokens, in four steps on each batch, it has learned more.",
    kind="headline",
    method=lambda: gspo(group=8),
    controls={"grpo": lambda: grpo(group=8, kl=0.0)},
    step_sizes=(64.0, 128.0, 256.0, 512.0, 1024.0),
    criteria=[More("mean success", by=0.0)],
    seeds=30,
    budget="answers",
    cost="slow",
    refuted=True,
    note="Neither is ahead: the difference over 30 seeds is in [-0.02, 0.03]. The paper has "
    "curves of long training of large models with routed experts, and no number.",
)
def learns_more(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    problem = uneven(seed, tasks=8, tokens=8, choices=2)
    return learned(algorithm, problem, steps=30, epochs=4, step_size=step_size, seed=seed)


@mutation("The log ratios of the tokens are summed, not averaged.", kills=quiet_ratio)
def summed(replace: Replace) -> None:
    def forward(self: SequenceRatio, experience: Experience, evaluation: Evaluation) -> Tensor:
        log_ratio = self.token(experience, evaluation) * experience.mask
        return log_ratio.sum(1, keepdim=True).expand_as(log_ratio)

    replace(SequenceRatio, "forward", forward)


@mutation("The ratio is averaged over the width of the batch, padding included.", kills=like_grpo)
def padding_counts(replace: Replace) -> None:
    def forward(self: SequenceRatio, experience: Experience, evaluation: Evaluation) -> Tensor:
        log_ratio = self.token(experience, evaluation) * experience.mask
        return log_ratio.mean(1, keepdim=True).expand_as(log_ratio)

    replace(SequenceRatio, "forward", forward)
