"""The networks of several responses to each choice."""

from __future__ import annotations

from polopt.networks.choices import ChoiceNetwork
from polopt.networks.learned import LearnedNetwork
from polopt.objectives import LoggedChoiceLikelihood, ResponseAscent, ResponseRegression


def response_networks(
    others: int, *, gamma: float, response_gamma: float, temperature: float, tau: float, hidden: tuple[int, ...]
) -> list[LearnedNetwork]:
    """Returns a critic of each response, named `critic`, a policy of each but the first, `response_policies`, and a
    model of the policy that logged, `behaviour`.

    others: responses beside the first. gamma, response_gamma, temperature: as in `objectives.ResponseRegression` and
    `objectives.ResponseAscent`. tau: the step of the critics' target copies.
    """
    critic, policies, behaviour = (ChoiceNetwork(heads=heads, hidden=hidden) for heads in (others + 1, others, 1))
    values = ResponseRegression(gamma=gamma, response_gamma=response_gamma)
    ascent = ResponseAscent(temperature=temperature)
    return [
        LearnedNetwork(name="critic", network=critic, objective=values, target_tau=tau),
        LearnedNetwork(name="response_policies", network=policies, objective=ascent),
        LearnedNetwork(name="behaviour", network=behaviour, objective=LoggedChoiceLikelihood()),
    ]
