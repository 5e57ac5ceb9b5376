"""PROPS: PPO on decisions whose behaviour policy evens out what was sampled too often or too seldom."""

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.ppo import control_ppo
from polopt.objectives import OldPolicyRatio
from polopt.sampling import BehaviourUpdate, RecentFragments


@method(
    paper=Paper(
        title="On-Policy Policy Gradient Reinforcement Learning Without On-Policy Sampling",
        authors="Corrado, Nicholas E. and Hanna, Josiah P.",
        year=2023,
        arxiv="2311.08290",
    ),
    changes="A behaviour policy, renewed every few decisions, makes likelier what the batch has too little of.",
    room="sampling",
    tier="proven",
)
def props(
    *,
    every: int = 16,
    recent: int = 2,
    behaviour_lr: float = 1e-3,
    behaviour_clip: float = 0.3,
    behaviour_epochs: int = 16,
    behaviour_minibatches: int = 4,
    max_kl: float | None = 0.01,
    gamma: float = 0.99,
    lam: float = 0.95,
    clip: float = 0.2,
    entropy: float = 0.0,
    steps: int = 128,
) -> Algorithm:
    """Every `every` decisions of each environment a behaviour policy phi is made from the policy theta by descent on

        L_phi = mean_t [ max(rho, clip(rho, 1 - e, 1 + e)) ]

    with rho = pi_phi(a_t | s_t) / pi_theta(a_t | s_t) and e = `behaviour_clip`, over the decisions of the batch so far
    and of the `recent` - 1 batches before. PPO then learns from all of them as if theta had sampled them: with r =
    pi(a_t | s_t) / pi_theta(a_t | s_t), no weights of importance, and advantages of GAE with the present critic.

    behaviour_lr, behaviour_epochs, behaviour_minibatches: of Adam's descent, whose moments are kept. max_kl: the
    estimate of KL(pi_theta || pi_phi) after which it stops. steps: of a fragment, a multiple of `every`. gamma, lam,
    clip, entropy: as in `ppo`.

    The defaults are those of the authors' program for choices; for vectors it has every = 8, behaviour_minibatches = 16
    and max_kl = 0.1. The paper adds lam KL(pi_theta || pi_phi), which is commented out there: `sampling.behaviour.kl`
    is lam. The paper has one environment, where `every` counts the decisions of each copy here. behaviour_epochs = 0
    and recent = 1 are PPO; recent > 1 alone, PPO that treats old decisions as its own.
    """
    update = BehaviourUpdate(
        lr=behaviour_lr, clip=behaviour_clip, epochs=behaviour_epochs, minibatches=behaviour_minibatches, max_kl=max_kl
    )
    parent = control_ppo(gamma=gamma, lam=lam, clip=clip, entropy=entropy, steps=steps)
    return parent.but(
        {"objective.ratio": OldPolicyRatio()},
        sampling=RecentFragments(behaviour=update, steps=steps, every=every, recent=recent),
    )
