"""UniWorld-V2 (Edit-R1): DiffusionNFT on the expected rating of a judge, without groups that hold little but noise."""

from __future__ import annotations

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.diffusion_nft import diffusion_nft
from polopt.sampling import Select


@method(
    paper=Paper(
        title="Uniworld-V2: Reinforce Image Editing with Diffusion Negative-aware Finetuning and MLLM Implicit "
        "Feedback",
        authors="Li, Zongjian and others",
        year=2025,
        arxiv="2510.16888",
    ),
    changes="DiffusionNFT that leaves out groups of alike or all but perfect points, whose rewards differ by the "
    "judge's noise.",
    room="sampling",
    tier="faithful",
)
def uniworld_v2(
    *, group: int = 12, b: float = 1.0, kl: float = 1e-4, least_std: float = 0.05, highest_mean: float = 0.9
) -> Algorithm:
    """DiffusionNFT on the groups g whose rewards R_i, in [0, 1], meet

        std_{i in g} R_i > least_std,    mean_{i in g} R_i < highest_mean

    A batch without such a group moves nothing.

    group: points of each context; the paper has 24 contexts of 12. b, kl: of `diffusion-nft`. least_std,
    highest_mean: of the code's training mask. Where the code chooses the next prompts, it passes over those of small
    std that have a high mean, too; here they are drawn alike.

    The paper's reward is the expected rating of a vision-language model, from the probabilities of its next token among
    "0" to "5": `worlds.points.expected_rating` makes it from any judge's logits. It is the reward of the task, and not
    a part of the method.
    """
    return diffusion_nft(group=group, b=b, kl=kl).but(
        select=[UnsettledGroups(least_std=least_std, highest_mean=highest_mean)]
    )


class UnsettledGroups(Select):
    """Keeps the groups whose outcomes have a standard deviation (of the population) above `least_std` and a mean below
    `highest_mean`.

    least_std (>= 0), highest_mean: in the unit of the outcome. Source: UniWorld-V2, arXiv:2510.16888.
    """

    tags = frozenset({"filter=outcome"})

    least_std: float = 0.05
    highest_mean: float = 0.9

    reads = frozenset({"outcome", "group"})

    def setup(self) -> None:
        if self.least_std < 0:
            raise ValueError(f"methods.uniworld_v2.UnsettledGroups: least_std must be >= 0, found {self.least_std}")

    def forward(self, experience: Experience) -> Experience:
        outcome, group = experience.outcome, experience.group
        spread = ops.group_std(outcome, group, correction=0)
        return experience[(spread > self.least_std) & (ops.group_mean(outcome, group) < self.highest_mean)]
