"""Predictors of a policy's success rate at a task before its rollouts."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from polopt import ops
from polopt.part import Part

WEIGHTS, SETTINGS = "predictor.safetensors", "predictor.json"


class Predictor(Part):
    """`predictor(context_prompts, context_scores, prompts) -> [prompts]` predicts success rates in [0, 1], without
    gradient.

    The context alone describes the policy: prompts that it has tried, and its mean score in [0, 1] at each.
    """

    def forward(self, context_prompts: Sequence[str], context_scores: Tensor, prompts: Sequence[str]) -> Tensor:
        raise NotImplementedError


class BaseRate(Predictor):
    """Predicts the mean score of the context for every prompt, with `mass` pseudo-scores of `rate` added."""

    rate: float = 0.5
    mass: float = 1.0

    def setup(self) -> None:
        if not 0 <= self.rate <= 1 or self.mass <= 0:
            raise ValueError(f"sampling.BaseRate: need rate in [0, 1] and mass > 0, found {self.rate} and {self.mass}")

    def forward(self, context_prompts: Sequence[str], context_scores: Tensor, prompts: Sequence[str]) -> Tensor:
        mean = (context_scores.double().sum() + self.mass * self.rate) / (len(context_scores) + self.mass)
        return mean.expand(len(prompts)).clone()


@functools.lru_cache(maxsize=1 << 14)
def ngrams(text: str, longest: int, buckets: int) -> Tensor:
    """Returns table indices, in [0, buckets), of all runs of 1 to `longest` bytes of a text, the shorter runs first."""
    codes = torch.tensor(list(text.encode()), dtype=torch.int64)
    keys, found = torch.zeros_like(codes), []
    for n in range(1, longest + 1):
        if len(codes) < n:
            break
        # A polynomial code of each run in wrapping integers, hashed at the end.
        keys = keys[: len(codes) - n + 1] * 257 + codes[n - 1 :] + 1
        found.append((ops.scrambled(keys) >> 8) % buckets)
    return torch.cat(found) if found else codes


class InContext(Predictor):
    """Logistic regression of scores on a small encoder's features of the prompts, fitted to the context at every call.

    The encoder sums vectors of size `width` over the runs of at most `longest` bytes of the prompt, from a table of
    `buckets` rows, and passes the sum through a residual layer: phi(x), of length 1. The head is the weights w that
    minimise

        n sum_i CE(score_i, sigmoid(w . phi(x_i))) + 1/2 sum_k lambda_k (w_k - w0_k)^2,

    found by differentiable Newton steps; the prediction is the mean of the sigmoid under the remaining uncertainty of w
    (MacKay's approximation). w0, lambda and n are parameters of the model, as the encoder's are: `fit` learns them from
    the scores of many policies, so that w0 fits most of them. Without a context w0 alone predicts.

    width: features of a prompt.
    longest: the longest run of bytes.
    buckets: rows of the encoder's table.
    seed: the seed of an untrained model.
    model: a folder that `save` wrote, which then sets the sizes; None initialises the table at random with `seed`.

    The weights are never trained together with a policy, and checkpoints hold them.

    Source: V0, arXiv:2602.03584, whose encoder is a language model and whose head is TabPFN.
    """

    width: int = 32
    longest: int = 4
    buckets: int = 4096
    seed: int = 0
    model: str | None = None

    def setup(self) -> None:
        if self.model is not None:
            sizes = _read(Path(self.model))
            self.width, self.longest, self.buckets = sizes["width"], sizes["longest"], sizes["buckets"]
        if min(self.width, self.longest, self.buckets) < 1:
            raise ValueError(
                "sampling.InContext: width, longest and buckets must be >= 1, found "
                f"{self.width}, {self.longest} and {self.buckets}"
            )
        g = torch.Generator().manual_seed(self.seed)
        self.table = nn.Parameter(torch.randn(self.buckets, self.width, generator=g) / math.sqrt(self.width))
        self.inner = nn.Parameter(torch.randn(self.width, self.width, generator=g) / math.sqrt(self.width))
        self.outer = nn.Parameter(torch.zeros(self.width, self.width))
        self.prior = nn.Parameter(torch.zeros(self.width + 1))
        self.precision = nn.Parameter(torch.full((self.width + 1,), math.log(0.25)))
        self.evidence = nn.Parameter(torch.tensor(math.log(4)))  # a score is mostly a mean of several tries
        if self.model is not None:
            self.load_state_dict(load_file(Path(self.model) / WEIGHTS))
        self.requires_grad_(False)

    def see(self, prompts: Sequence[str]) -> Tensor:
        """Returns the encoder's features of prompts and a 1 for the bias, [prompts, width + 1], with gradient."""
        runs = [ngrams(text, self.longest, self.buckets) for text in prompts]
        return self.encode(runs)

    def encode(self, runs: Sequence[Tensor]) -> Tensor:
        """Returns the features of `see` for prompts given as the indices of `ngrams`."""
        device = self.table.device
        sizes = torch.tensor([len(r) for r in runs], dtype=torch.int64)
        flat = torch.cat([*runs, torch.zeros(0, dtype=torch.int64)]).to(device)
        starts = (sizes.cumsum(0) - sizes).to(device)
        summed = nn.functional.embedding_bag(flat, self.table, starts, mode="sum")
        x = summed / sizes.clamp(min=1).sqrt().to(device)[:, None]
        x = x + nn.functional.gelu(x @ self.inner) @ self.outer
        x = nn.functional.normalize(x.double(), dim=-1)
        return torch.cat([x, torch.ones_like(x[:, :1])], -1)

    def logits(self, context: Tensor, scores: Tensor, queries: Tensor) -> Tensor:
        """Returns logits [..., q] from the features of the context [..., n, d], with its scores, and of the queries
        [..., q, d]."""
        prior, precision = self.prior.double(), self.precision.double().exp()
        weight, curvature = posterior(context, scores, prior, precision, self.evidence.double().exp())
        mean = (queries @ weight[..., None])[..., 0]
        spread = (queries * torch.linalg.solve(curvature, queries.mT).mT).sum(-1)
        return mean / (1 + math.pi * spread / 8).sqrt()

    @torch.no_grad()
    def forward(self, context_prompts: Sequence[str], context_scores: Tensor, prompts: Sequence[str]) -> Tensor:
        if len(context_prompts) != len(context_scores):
            raise ValueError(
                "sampling.InContext: every prompt of the context needs a score, found "
                f"{len(context_prompts)} and {len(context_scores)}"
            )
        scores = context_scores.to(self.table.device, torch.float64)
        if not ((scores >= 0) & (scores <= 1)).all():
            raise ValueError(
                f"sampling.InContext: scores must be in [0, 1], found {float(scores.min()):g} to "
                f"{float(scores.max()):g}"
            )
        return self.logits(self.see(context_prompts), scores, self.see(prompts)).sigmoid()

    def save(self, folder: Path | str) -> None:
        """Writes weights and sizes to a folder that the setting `model` names."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        sizes = {"width": self.width, "longest": self.longest, "buckets": self.buckets}
        save_file({k: v.contiguous() for k, v in self.state_dict().items()}, folder / WEIGHTS)
        (folder / SETTINGS).write_text(json.dumps(sizes, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """Returns the predictor that `save` wrote."""
        return cls(model=str(folder))


def _read(folder: Path) -> dict[str, int]:
    file = folder / SETTINGS
    if not file.is_file() or not (folder / WEIGHTS).is_file():
        raise ValueError(
            f"sampling.InContext: model = {str(folder)!r} holds no {SETTINGS} and {WEIGHTS}; name a folder that "
            "InContext.save wrote, or None"
        )
    return json.loads(file.read_text(encoding="utf-8"))


def posterior(
    x: Tensor, y: Tensor, prior: Tensor, precision: Tensor, evidence: Tensor | float = 1.0, steps: int = 6
) -> tuple[Tensor, Tensor]:
    """Returns the posterior mode of a logistic regression's weights, [..., d], and the curvature there, [..., d, d].

    The regression is of y [..., n] in [0, 1] on x [..., n, d] with the prior N(prior, 1 / precision), each pair counted
    `evidence` times. Two steps use the curvature's upper bound, which cannot overshoot; the others are Newton steps.
    """
    ridge = torch.diag(precision)
    weight = prior.expand(*x.shape[:-2], x.shape[-1])
    bound = evidence * x.mT @ x / 4 + ridge
    curvature = bound
    for step in range(steps + 2):
        p = (x @ weight[..., None])[..., 0].sigmoid()
        gradient = evidence * (x.mT @ (p - y)[..., None])[..., 0] + precision * (weight - prior)
        curvature = evidence * x.mT @ ((p * (1 - p))[..., None] * x) + ridge
        weight = weight - torch.linalg.solve(bound if step < 2 else curvature, gradient[..., None])[..., 0]
    return weight, curvature
