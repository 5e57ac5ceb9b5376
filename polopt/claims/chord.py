"""These programs measure what the paper of CHORD claims."""

from polopt.algorithm import Algorithm
from polopt.claim import Finding, claim
from polopt.lab import train
from polopt.lab.demonstrations import another_style
from polopt.methods.chord import chord
from polopt.methods.sft import sft


def course(*stages: tuple[Algorithm, float], steps: int = 100, rate: float = 80.0) -> tuple[list[float], float]:
    """Expected reward along training on an expert with another style, and the entropy in the end. Each algorithm gets
    an equal share of the steps, at its multiple of the rate."""
    tree, policy, demonstrations = another_style()
    seen = [tree.value(policy).item()]
    for algorithm, times in stages:
        seen += train(
            algorithm,
            tree,
            policy,
            steps=steps // len(stages),
            rate=times * rate,
            rows=tree.prompts,
            demonstrations=demonstrations,
            watch=lambda: tree.value(policy).item(),
        )
    return seen, tree.entropy(policy).item()


@claim(
    "No dip while an expert of another style is mixed in, and nothing lost in the end.",
    kind="headline",
    baseline="SFT, then RL",
)
def no_dip() -> Finding:
    alone = chord(mu=0.0)
    (phi, _), (after, _), (grpo, _) = course((chord(), 1.0)), course((sft(), 0.1), (alone, 1.0)), course((alone, 1.0))
    plain, slow = (course((chord(weight=None), 1.0), rate=rate)[0] for rate in (80.0, 20.0))
    measured = {"lowest": min(phi), "SFT then GRPO: lowest": min(after), "without weight: lowest": min(plain)}
    measured |= {"without weight, a quarter of the rate: lowest": min(slow)}
    measured |= {"final": phi[-1], "SFT then GRPO: final": after[-1], "GRPO: final": grpo[-1]}
    return Finding(
        measured=measured,
        criterion="lowest >= 0.75 where SFT first falls below 0.6; final >= the better of the others - 0.01",
        holds=min(phi) >= 0.75 and min(after) < 0.6 and phi[-1] >= max(after[-1], grpo[-1]) - 0.01,
        note="Without p (1 - p) the same share dips too, unless the rate is small enough for RL to keep up.",
    )


@claim("It ends with at least twice the entropy of the plain mix.", kind="part", baseline="no weight", refuted=True)
def entropy_kept() -> Finding:
    (_, phi), (_, plain) = course((chord(), 1.0), rate=20.0), course((chord(weight=None), 1.0), rate=20.0)
    return Finding(
        measured={"entropy": phi, "without weight": plain},
        criterion=">= 2x without weight",
        holds=phi >= 2 * plain,
        note="There is no dip because the expert is not followed: of a style of probability 0.01 a token weighs 0.01. "
        "The policy stays in its own style and grows certain of it; the plain mix goes over to the expert's, which it "
        "is still learning.",
    )
