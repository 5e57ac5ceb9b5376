"""3D-SGRL: a policy and critics over a body's limbs that do not change when the world is turned about gravity."""

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.td3 import td3
from polopt.networks import Limbs, Subequivariant, SubequivariantQ


@method(
    paper=Paper(
        title="Subequivariant Graph Reinforcement Learning in 3D Environments",
        authors="Chen, Runfa and Han, Jiaqi and Sun, Fuchun and Huang, Wenbing",
        year=2023,
        arxiv="2305.18951",
    ),
    changes="TD3 with a policy and critics that are the same in whichever direction about gravity a task lies.",
    room="objectives",
    tier="faithful",
)
def sgrl_set(
    *,
    limbs: int = 1,
    vectors: int = 5,
    scalars: int = 0,
    directions: tuple[int, ...] = (0,),
    axes: tuple[int, ...] = (2, 3, 4),
    width: int = 128,
    heads: int = 2,
    layers: int = 3,
    mixed: int = 30,
    gamma: float = 0.99,
    tau: float = 0.005,
    noise: float = 0.1,
    batch: int = 256,
    start: int = 1000,
    capacity: int = 1_000_000,
    steps: int = 1,
) -> Algorithm:
    """TD3, whose networks know of each limb i vectors V_i [3, M], turned with the world, and numbers h_i. With
    Z = [V W, g, d], gravity g and the task's direction d, and a perceptron m of inner products and numbers,

        S = Z' Z
        V_out = Z m(S, h) / (1 + |S|)
        a_ik = tanh(axis_ik V_out_i)

    where Z' is the transpose, and limbs attend to each other by S and h. An action is along the limb's own axes, so
    that of a world turned about gravity is the same. limbs, vectors, scalars, directions, axes: the observation's
    layout, as in `networks.Limbs`; its positions must be relative. width, heads, layers, mixed: as in
    `networks.Subequivariant`. gamma, tau, noise, batch, start, capacity, steps: as in `td3`.

    The paper trains one policy for bodies of many shapes, padded, with encodings of a limb's place in the body's tree;
    here it is one body, whose limbs have learned places.
    """
    layout = Limbs(limbs=limbs, vectors=vectors, scalars=scalars, directions=directions, axes=axes)
    actor = Subequivariant(limbs=layout, width=width, heads=heads, layers=layers, mixed=mixed)
    critic = SubequivariantQ(limbs=layout, width=width, heads=heads, layers=layers, mixed=mixed)
    made = td3(gamma=gamma, tau=tau, noise=noise, batch=batch, start=start, capacity=capacity, steps=steps)
    return made.but({"networks.0.network": critic}, trunk=actor)
