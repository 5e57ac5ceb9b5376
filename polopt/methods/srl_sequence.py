"""SRL: SAC whose policy plays several actions in turn, each learned at the state that a model says they lead to."""

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.sac import sac
from polopt.networks import ActionSequence, LearnedNetwork, VectorNetwork
from polopt.objectives import ModelRegression, TemperatureLoss, ValueAscent
from polopt.sampling import LastAction


@method(
    paper=Paper(
        title="Overcoming Slow Decision Frequencies in Continuous Control: Model-Based Sequence Reinforcement Learning "
        "for Model-Free Control",
        authors="Patel, Devdhar and Siegelmann, Hava",
        year=2024,
        arxiv="2410.08979",
    ),
    changes="The policy takes several actions after one look; a model says at which state each one counts.",
    room="objectives",
    tier="proven",
)
def srl_sequence(
    *,
    sequence: int = 8,
    model_hidden: tuple[int, ...] = (400, 300),
    gamma: float = 0.99,
    tau: float = 0.005,
    entropy: float | None = None,
    temperature: float = 1.0,
    batch: int = 256,
    start: int = 10_000,
    capacity: int = 1_000_000,
    steps: int = 1,
    hidden: tuple[int, ...] = (256, 256),
) -> Algorithm:
    """With a_0 .. a_(J-1) actions of a recurrent policy after one look at s, m a model and m' its average,

        L_m = |m(s, a) - s_next|^2 / D
        s_0 = s,  s_(j+1) = m'(s_j, a_j)
        L_pi = sum_j (alpha log pi(a_j | s, a_(j-1), ...) - min_h Q_h(s_j, a_j))

    without a gradient through s_j, the critics of SAC on single transitions, whose next action is the first of a
    sequence, and the mean of log pi over j in alpha's loss. The actions are played in turn while transitions are
    collected. sequence: J. model_hidden: widths of m. gamma, tau, entropy, temperature, batch, start, capacity, steps,
    hidden: as in `sac`; the last of `hidden` is also the width of the recurrent state.

    A trained policy needs no model, and looks as often as it is asked to: evaluation.frequency measures that. The
    authors' program draws another batch for m and the policy than for the critics; here all learn from one.
    """
    replay = {"batch": batch, "start": start, "capacity": capacity, "steps": steps}
    parent = sac(gamma=gamma, tau=tau, entropy=entropy, temperature=temperature, hidden=hidden, **replay)
    network = VectorNetwork(reads_from=("observation", "action"), hidden=model_hidden)
    model = LearnedNetwork(name="model", network=network, objective=ModelRegression(), target_tau=tau)
    objective = ValueAscent(temperature="temperature", sequence=sequence, model="model")
    price = TemperatureLoss(target=entropy, sequence=sequence, model="model")
    changes = {"sampling.sequence": sequence, "sampling.policy_input": LastAction(), "networks.1.objective": price}
    made = parent.but(changes, objective=objective, trunk=ActionSequence(hidden=hidden))
    return made.but(networks=[*made.networks, model])
