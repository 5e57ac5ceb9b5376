"""The settings of a recipe's rollout workers on a cluster."""

from __future__ import annotations

from typing import Annotated

import pydantic

from polopt.algorithm import Algorithm
from polopt.config import Config, ConfigError
from polopt.part_names import name_of

# The fields of the behaviour policy that an objective may read.
OF_THE_SAMPLER = frozenset({"rollout_logp", "extras.policy_logp"})


class ClusterSpec(Config):
    """Rollouts come from workers on a cluster, whose address is given on the command line.

    workers: how many. shares: the number of pieces that a request is split into, None for one per worker; the rows
    depend on this number, and not on which worker plays them. ahead: how many batches are sampled before their turn:
    batch t is drawn with the weights after batch t - 1 - ahead.
    cpus, gpus: what each worker takes of its node. seconds: a worker that takes longer over a share is given up, and
    another one plays it. attempts: workers that one share may cost. patience: seconds that the run waits while there is
    no worker at all.
    """

    workers: Annotated[int, pydantic.Field(ge=1, le=10**6)] = 2
    shares: Annotated[int, pydantic.Field(ge=1, le=10**6)] | None = None
    ahead: Annotated[int, pydantic.Field(ge=0, le=10**6)] = 0
    cpus: Annotated[float, pydantic.Field(ge=0)] = 1.0
    gpus: Annotated[float, pydantic.Field(ge=0)] = 0.0
    seconds: Annotated[float, pydantic.Field(gt=0)] = 600.0
    attempts: Annotated[int, pydantic.Field(ge=1, le=10**6)] = 4
    patience: Annotated[float, pydantic.Field(gt=0)] = 600.0

    @property
    def pieces(self) -> int:
        """Returns the number of shares that a request is split into."""
        return self.shares or self.workers


def check_ahead(stage: str, algorithm: Algorithm, spec: ClusterSpec) -> None:
    """Refuses to learn from rows of older weights with an objective that reads no behaviour log-probability.

    Raises:
        ConfigError: naming the stage, the objective and the fix.
    """
    objective = algorithm.objective
    if not spec.ahead or algorithm.sampling.rollout_support is None or OF_THE_SAMPLER & objective.required_fields:
        return
    raise ConfigError(
        f"stages.{stage}: {name_of(type(objective))} as set here reads no log-probability of the sampler, so rows of "
        f"older weights would bias it, and cluster.ahead = {spec.ahead}; set cluster.ahead to 0, or weigh the rows, as "
        f"with stages.{stage}.but: {{objective.weights: [{{part: objectives.ImportanceWeight}}]}}"
    )
