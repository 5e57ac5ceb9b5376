"""SPO: DPO with a classifier of how much of an answer's key content is missing, on the policy's own hidden states."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.features import RowMask
from polopt.method import Paper, method
from polopt.methods.dpo import dpo
from polopt.objectives import Branch, BranchedObjective, Objective
from polopt.objectives.parts import full_batch_of
from polopt.part import Part
from polopt.sampling import PreferencePairs, Sampling


@method(
    paper=Paper(
        title="Self-supervised Preference Optimization: Enhance Your Language Model with Preference Degree Awareness",
        authors="Li, Jian and Huang, Haojing and Zhang, Yujia and Xu, Pengfei and Chen, Xi and Song, Rui and "
        "Shi, Lida and Wang, Jingwen and Xu, Hao",
        year=2024,
        arxiv="2409.17791",
    ),
    changes="DPO plus a classifier, on the policy's hidden states, of how much of an answer's key content is missing.",
    room="objectives",
    tier="reading",
)
def spo_selfsup(
    *,
    beta: float = 0.1,
    label_smoothing: float = 0.0,
    weight: float = 0.1,
    degrees: int = 5,
    share: float = 1 / 3,
    shrinkage: float = 1.0,
    probe: bool = False,
) -> Algorithm:
    """L = L_DPO - weight mean_k log p_k(y^k)

    over k = 0 .. degrees - 1, with p(y) = softmax(W h(y) + b).

    Of every answer y of a pair, preferred or rejected, y^0 = y, and in y^k the most important k / degrees of its key
    content are replaced; h is the hidden state of the policy from which the answer's last token is predicted. The
    gradient of the classification flows into the policy. No label is needed for it.

    weight: of the classification; 0 is DPO, of the same batch.
    degrees: K; 1 makes no copies, and the classification is 0.
    share: the fraction of an answer's tokens that are key content, those of the highest `TokenImportance`.
    shrinkage: of the classifier, see `DiscriminantHead`.
    probe: the classification has no gradient: a measurement alone, as a control.
    beta, label_smoothing: as in `dpo`; `but({"objective.routes.0.objective": ...})` exchanges the loss of the pairs.

    Deviations. The paper's summary was available to us, its text and program were not: it removes key content, found
    by keyword extraction (RAKE), in different amounts, and adds the loss of a classifier of the amount. All numbers
    are ours. Tokens are replaced by ordinary tokens of the batch's answers, not removed, or length, or a mask to be
    counted, would tell the degree. Importance is tf-idf in the batch, as tokens have no list of stop words; it is a
    slot. The classifier is no parameter that a gradient trains: it is fitted in closed form to each optimiser batch,
    and the gradient flows through the states, not the fit. So it needs batches of many pairs.
    """
    if weight < 0:
        raise ValueError(f"spo_selfsup: weight must be >= 0, found {weight}")
    pairs = dpo(beta=beta, label_smoothing=label_smoothing)
    classification = DegreeClassification(degrees=degrees, head=DiscriminantHead(shrinkage=shrinkage), probe=probe)
    routes = [
        Branch(objective=pairs.objective, rows=Intact()),
        Branch(objective=classification, weight=weight),
    ]
    sampling = DegradedCopies(degrees=degrees, share=share)
    return pairs.but(sampling=sampling, objective=BranchedObjective(routes=routes))


class TokenImportance(Part):
    """`importance(tokens [B, T], mask [B, T]) -> [B, T]`: how much of an answer's content each of its tokens carries,
    for the tokens in the mask; only the order in a row counts."""

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        raise NotImplementedError


class TfIdf(TokenImportance):
    """Number of times that the answer has the token, times log((1 + answers) / (1 + answers that have it)), over the
    answers of the batch."""

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        row = mask.nonzero()[:, 0]
        vocabulary, word = tokens[mask].unique(return_inverse=True)
        count = torch.zeros(len(tokens), len(vocabulary), dtype=torch.double, device=tokens.device)
        count.index_put_((row, word), count.new_ones(len(row)), accumulate=True)
        rarity = ((1 + len(tokens)) / (1 + (count > 0).sum(0))).log()
        found = torch.zeros(tokens.shape, dtype=torch.double, device=tokens.device)
        found[mask] = count[row, word] * rarity[word]
        return found


class Intact(RowMask):
    """Selects rows of degree 0, whose answer is as it was given."""

    reads = frozenset({"extras.degree"})

    def forward(self, experience: Experience) -> Tensor:
        return experience.extras["degree"] == 0


class DegradedCopies(Sampling):
    """Adds copies of each row of another sampling part, in which the ceil(k / degrees n) most important of its n tokens
    of key content are replaced, for k = 1 .. degrees - 1. `extras.degree` [B] is k, and 0 for the rows themselves.

    Key content are the ceil(share m) most important of the m decisions of a row without its last one, which no decision
    is predicted from. A token is replaced by one of the batch's decisions that are no key content, pseudo-randomly. A
    copy in which no more is replaced than in the one before is left out. Copies share their row's group.

    of: makes the rows.
    importance: orders the tokens of a row.
    """

    of: Sampling = PreferencePairs()
    degrees: int = 5
    share: float = 1 / 3
    importance: TokenImportance = TfIdf()

    reads = frozenset({"extras.tokens"})
    writes = frozenset({"extras.degree"})

    def setup(self) -> None:
        if self.degrees < 1 or not 0 < self.share <= 1:
            raise ValueError(
                "methods.spo_selfsup.DegradedCopies: need degrees >= 1 and share in (0, 1], found "
                f"{self.degrees} and {self.share:g}"
            )

    def forward(self, source: object) -> Experience:
        return self.degraded(self.of(source))

    def filtered(self, experience: Experience) -> Experience:
        """Returns the rows that the other part would have kept of a finished batch, and their copies."""
        return self.degraded(self.of.filtered(experience))

    @property
    def group_size(self) -> int:
        return self.of.group_size

    def sampling_overhead(self, kept: float, decisions: float) -> float:
        return self.of.sampling_overhead(kept, decisions)

    def degraded(self, experience: Experience) -> Experience:
        """Returns a batch with its copies behind it."""
        experience.require({"extras.tokens"}, by=self)
        B = len(experience)
        whole = experience.replace(extras={"degree": torch.zeros(B, dtype=torch.long, device=experience.device)})
        tokens, content = experience.extras["tokens"], experience.mask & ~ops.last_decision(experience.mask)
        if self.degrees == 1 or not content.any():
            return whole
        rank, key = self._ranked(tokens, content)
        ordinary = tokens[content & (rank >= key)]
        fillers = ordinary if len(ordinary) else tokens[content]
        noise = ops.scrambled(torch.arange(tokens.numel(), device=tokens.device)).view_as(tokens)
        rows, copies, degree = [torch.arange(B, device=tokens.device)], [tokens], [whole.extras["degree"]]
        before = torch.zeros_like(key)
        for k in range(1, self.degrees):
            count = (k * key + self.degrees - 1) // self.degrees
            more = (count > before).flatten().nonzero().flatten()
            filler = fillers[(noise + k * ops.scrambled(noise)) % len(fillers)]
            rows.append(more)
            copies.append(torch.where(content & (rank < count), filler, tokens)[more])
            degree.append(torch.full_like(more, k))
            before = count
        return whole[torch.cat(rows)].replace(extras={"tokens": torch.cat(copies), "degree": torch.cat(degree)})

    def _ranked(self, tokens: Tensor, content: Tensor) -> tuple[Tensor, Tensor]:
        """Returns each token's place [B, T] in its row by importance, from 0, and the number of key tokens [B, 1]."""
        score = torch.where(content, self.importance(tokens, content), -torch.inf)
        order = score.argsort(dim=1, descending=True, stable=True)
        places = torch.arange(tokens.shape[1], device=tokens.device).expand_as(order)
        return torch.empty_like(order).scatter_(1, order, places), _ceil(self.share * content.sum(1, keepdim=True))


def _ceil(x: Tensor) -> Tensor:
    return (x.double() - 1e-9).ceil().long()  # a third of 3 is 1, also where rounding makes it more


class DegreeHead(Part):
    """`head(states [N, d], degree [N], queries [M, d], K) -> logits [M, K]`: a classifier of degrees 0 .. K - 1, fitted
    to labelled states without gradient, and applied to queries with theirs."""

    def forward(self, states: Tensor, degree: Tensor, queries: Tensor, degrees: int) -> Tensor:
        raise NotImplementedError


class DiscriminantHead(DegreeHead):
    """Linear discriminant analysis: logits (x - m)' S^-1 (m_k - m) - (m_k - m)' S^-1 (m_k - m) / 2 + log n_k / N.

    m_k and n_k are mean and number of the states of degree k, m the mean of all, and S their covariance about their
    own mean plus `shrinkage` times its mean eigenvalue, for every direction. A degree without states has logit -inf.

    shrinkage: 0 whitens the states, which fits any labels where there are more dimensions than states; a large one
        leaves distances as they are, and the logits small.
    """

    shrinkage: float = 1.0

    def setup(self) -> None:
        if not (self.shrinkage > 0 and math.isfinite(self.shrinkage)):
            raise ValueError(
                f"methods.spo_selfsup.DiscriminantHead: shrinkage must be positive, found {self.shrinkage}"
            )

    def forward(self, states: Tensor, degree: Tensor, queries: Tensor, degrees: int) -> Tensor:
        states, wide = states.detach().double(), queries.double()
        member = torch.nn.functional.one_hot(degree, degrees).double()
        count, centre = member.sum(0), states.mean(0)
        mean = member.T @ (states - centre) / count.clamp(min=1)[:, None]
        within = states - centre - mean[degree]
        ridge = self.shrinkage * within.square().mean().clamp(min=1e-12)
        weight = _inverse_times(within, ridge, mean)
        logits = (wide - centre) @ weight.T - (mean * weight).sum(1) / 2 + (count / len(states)).log()
        return logits.masked_fill(count == 0, -torch.inf).to(queries)


def _inverse_times(x: Tensor, ridge: Tensor, b: Tensor) -> Tensor:
    """Returns the rows b [K, d] times (x'x / N + ridge)^-1, x [N, d], by the smaller of the two Gram matrices."""
    N, d = x.shape
    if d <= N:
        return torch.linalg.solve(x.T @ x / N + ridge * torch.eye(d).to(x), b.T).T
    dual = torch.linalg.solve(x @ x.T / N + ridge * torch.eye(N).to(x), x @ b.T / N)
    return (b - dual.T @ x) / ridge


class DegreeClassification(Objective):
    """mean over rows of -log softmax(head(h))_k, k the row's `extras.degree`, h its hidden state at the last decision.

    The head is fitted to the states of the whole optimiser batch before the step, which exist at once, [B, T, d].

    degrees: K, the number of degrees.
    head: the classifier.
    probe: stop the gradient, so that the classification measures the policy and does not change it.

    Metrics: `degrees/accuracy`, the fraction of rows whose degree has the highest logit; `degrees/loss`.
    """

    degrees: int = 5
    head: DegreeHead = DiscriminantHead()
    probe: bool = False

    reads = frozenset({"extras.degree"})
    policy_outputs = frozenset({"extras.hidden"})
    full_batch_outputs = frozenset({"extras.hidden"})

    def setup(self) -> None:
        if self.degrees < 1:
            raise ValueError(f"methods.spo_selfsup.DegreeClassification: degrees must be >= 1, found {self.degrees}")

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        evaluation = evaluation.zero_masked(experience.mask)
        queries, degree = self._labelled(experience, evaluation)
        full_batch, full_batch_evaluation = full_batch_of(experience)
        states, labels = self._labelled(full_batch, full_batch_evaluation)
        zero = 0 * evaluation.logp.sum()
        if not len(queries):
            return Loss(zero, {"degrees/accuracy": zero.detach(), "degrees/loss": zero.detach()})
        logits = self.head(states, labels, queries.detach() if self.probe else queries, self.degrees)
        total = torch.nn.functional.cross_entropy(logits, degree, reduction="sum")
        count = experience.denominator_batch.mask.any(1).sum().to(total)
        right = (logits.argmax(1) == degree).to(total)
        metrics = {"degrees/accuracy": right.sum() / count, "degrees/loss": total.detach() / count}
        return Loss(total / count + zero, metrics)

    @staticmethod
    def _labelled(experience: Experience, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        """Returns the states [N, d] at the last decisions, and the degrees [N], of the rows with decisions."""
        row, column = ops.last_decision(experience.mask).nonzero(as_tuple=True)
        return evaluation.extras["hidden"][row, column], experience.extras["degree"][row]
