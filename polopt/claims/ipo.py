"""These programs measure what the paper of IPO claims."""

from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.policy import TabularPolicy
from polopt.lab.preferences import descended, paired
from polopt.lab.tree import TokenTree
from polopt.methods.dpo import dpo
from polopt.methods.ipo import ipo
from polopt.objectives import SquaredLink


def _margins(algorithm: Algorithm, rate: float) -> tuple[float, float]:
    """log pi / ref of the preferred answer of two above that of the other one, after 100 and after 1000 steps."""
    tree = TokenTree.bandit([0.0, 0.0])
    reference, policy = (TabularPolicy(tree, spread=1.0, seed=0) for _ in range(2))
    batch, found = paired(tree, reference, [(0, 1)]), []
    for steps in (100, 900):
        descended(algorithm, batch, policy, rate, steps)
        ratio = (tree.log_probabilities(policy) - tree.log_probabilities(reference)).detach()[0]
        found.append(float(ratio[0] - ratio[1]))
    return found[0], found[1]


@claim(
    "A preference that nobody contradicts moves the policy by 1 / (2 tau) and no further.",
    kind="headline",
    baseline="dpo",
)
def finite_margin() -> Finding:
    tau = 0.25
    ours, later = _margins(ipo(tau=tau), rate=0.05)
    other, other_later = _margins(dpo(beta=tau), rate=4.0)
    return Finding(
        measured={"IPO at 100": ours, "IPO at 1000": later, "DPO at 100": other, "DPO at 1000": other_later},
        criterion="IPO's margin within 1e-6 of 2 at both, DPO's 1.3 times as large at 1000 and above 10",
        holds=max(abs(ours - 2), abs(later - 2)) < 1e-6 and other_later > max(10, 1.3 * other),
    )


@mutation("The margin's target is 1 / tau.", kills=finite_margin)
def twice_as_far(replace: Replace) -> None:
    replace(SquaredLink, "forward", lambda self, margin, gap: (margin - 2 * self.target).square())


@mutation("The loss is logistic: the margin has no target.", kills=finite_margin)
def logistic(replace: Replace) -> None:
    def forward(self: SquaredLink, margin: Tensor, gap: Tensor) -> Tensor:
        return -(margin / self.target).sigmoid().log()

    replace(SquaredLink, "forward", forward)
