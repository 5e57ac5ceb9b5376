"""HIB: PPO by a latent vector of the history, which predicts what the simulator tells and little else."""

from typing import Any

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.ppo import control_ppo
from polopt.networks import HistoryEncoder
from polopt.objectives import LatentKL, PrivilegedDistance, Regulariser
from polopt.sampling import EpisodeHistory


@method(
    paper=Paper(
        title="Bridging the Sim-to-Real Gap from the Information Bottleneck Perspective",
        authors="He, Haoran and Wu, Peilin and Bai, Chenjia and Lai, Hang and Wang, Lingxiao and Pan, Ling and Hu, "
        "Xiaolin and Zhang, Weinan",
        year=2023,
        arxiv="2305.18464",
    ),
    changes="The policy acts by a latent vector of the history, which predicts features of the privileged state.",
    room="objectives",
    tier="reading",
)
def hib(
    *,
    length: int = 8,
    latent: int = 8,
    features: int = 16,
    encoder: tuple[int, ...] = (128, 64),
    hidden: tuple[int, ...] = (64, 64),
    privileged: float = 1.0,
    bottleneck: float = 1e-3,
    gamma: float = 0.99,
    lam: float = 0.95,
    clip: float = 0.2,
    entropy: float = 0.0,
    steps: int = 32,
) -> Algorithm:
    """Before a decision the policy sees s and h, the last `length` observations and actions, and the simulator tells p:

        z = mu(h) + sigma(h) eps,  eps ~ N(0, I),  a ~ pi(a | s, z)
        L = L_PPO + privileged (2 - 2 cos(g(z), f(p))) + bottleneck KL(N(mu(h), sigma(h)^2) || N(0, I))

    so that z keeps of h what predicts p. eps is drawn while the policy acts and kept: ratios are exact. The critic
    V(s, f(p)) trains f, and the distance does not. A trained policy needs neither f nor g.

    latent, features: numbers in z and f(p). encoder, hidden: as in `networks.HistoryEncoder`. privileged, bottleneck:
    with 0 and 0 it is PPO by a history. gamma, lam, clip, entropy, steps: as in `ppo`.

    Deviations. The principle was at hand, max I(z; p) - alpha I(z; h), and the text was not: the distance, what trains
    f, the encoder, a perceptron, and the defaults are our reading. Observations are a Dict with an entry `privileged`.
    """
    made: Any = control_ppo(gamma=gamma, lam=lam, clip=clip, entropy=entropy, steps=steps)
    terms: list[Regulariser] = [PrivilegedDistance(coefficient=privileged)] if privileged else []
    terms += [LatentKL(coefficient=bottleneck)] if bottleneck else []
    given = EpisodeHistory(length=length, noise=latent)
    trunk = HistoryEncoder(latent=latent, features=features, encoder=encoder, hidden=hidden)
    changes = {"sampling.policy_input": given, "objective.regularise": [*made.objective.regularise, *terms]}
    return made.but(changes, trunk=trunk)  # type: ignore[no-any-return]
