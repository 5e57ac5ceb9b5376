"""SDPO: self-distillation from the policy conditioned on a right answer, token by token."""

from polopt.algorithm import Algorithm
from polopt.features.masks import HasTeacher
from polopt.method import Paper, method
from polopt.objectives import Branch, BranchedObjective, Distillation, ImportanceWeight, Surrogate, TokenMean
from polopt.sampling import Rollouts
from polopt.teachers import SelfTeacher, Sibling


@method(
    paper=Paper(
        title="Reinforcement Learning via Self-Distillation",
        authors="Hübotter, Jonas and others",
        year=2026,
        arxiv="2601.20802",
    ),
    changes="Each decision moves to what the averaged policy would say there, had it seen a right answer.",
    room="objectives",
    tier="faithful",
)
def sdpo(*, group: int = 8, alpha: float = 0.5, top: int = 100, rate: float = 0.05, cap: float = 2.0) -> Algorithm:
    """q_t = pi_avg(. | prompt + a right sibling's answer, y_<t), p_t = pi(. | prompt, y_<t), on the policy's answers y:

        L = (1 / sum_i |y_i|) sum_it min(exp(logp_it - behaviour logp_it), cap) D_alpha(q_it, p_it)

    over the rows that have a right sibling, D the generalised Jensen-Shannon divergence on the teacher's `top`
    likeliest ids and one bucket for the rest; pi_avg moves by `rate` to the policy after every batch. No advantage is
    read. The authors take the candidates from the student (`teacher.chosen_by`) and condition on the environment's
    feedback, `Step.info["feedback"]`, where no sibling is right (`teachers.First`).
    """
    surrogate = Surrogate(
        ratio=None,
        trust=Distillation(alpha=alpha),
        weights=[ImportanceWeight(high=cap - 1)],
        aggregate=TokenMean(),
    )
    return Algorithm(
        sampling=Rollouts(group=group),
        objective=BranchedObjective(routes=[Branch(objective=surrogate, rows=HasTeacher())]),
        teacher=SelfTeacher(hint=Sibling(), rate=rate, top=top),
    )
