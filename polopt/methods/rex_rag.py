"""REX-RAG: failed rows are retried with an inserted text; ratios are to the mixture of both kinds of rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.features import IsCorrect, RowMask
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.objectives import TokenRatio
from polopt.objectives.parts import Ratio
from polopt.ops import LIMIT, NOTHING
from polopt.sampling.rollouts import Rollouts
from polopt.sampling.source_protocols import ContinuingSource, EncodingSource
from polopt.situation import Situation

TEXTS = (
    "That may be wrong. Let me try another way.",
    "I have not looked everywhere yet. What else is there?",
    "Something is missing here. Let me go one step back.",
)


@method(
    paper=Paper(
        title="REX-RAG: Reasoning Exploration with Policy Correction in Retrieval-Augmented Generation",
        authors="Jiang, Wentao and others",
        year=2025,
        arxiv="2508.08149",
    ),
    changes="GRPO beside whose failures stand second tries, begun with a text that is put in; its ratio is to the "
    "mixture of both.",
    room="sampling",
    tier="faithful",
)
def rex_rag(
    *,
    group: int = 5,
    texts: Sequence[str] = TEXTS,
    chance: float = 0.2,
    keep: float = 0.08,
    kept: float = 0.0,
    correct: Literal["token", "row", "none"] = "token",
    clip: float = 0.2,
    kl: float = 0.001,
) -> Algorithm:
    """A failed rollout is probed with probability `chance`: cut in its last answer, of which the share `kept` stays,
    extended by one of `texts`, and continued. At most `keep` probes for every rollout stay, those whose text has the
    highest probability under the policy q. They join the groups of the rows they come from; the credit is GRPO's, over
    both. With a the share of probes, m the probe and p the policy,

        r_t = p_t / ((1 - a) q_t + a m_t)

    stands for GRPO's ratio. m_t is q_t, but for the text, whose tokens are as likely as they are frequent after the
    same tokens among `texts`, and before the cut, where it is q_t / err^(1/j): j decisions are shared by failures
    alone, the share err of the rollouts. In rows without a probe m is 0, so that each of their ratios begins at
    1 / (1 - a): keep a small beside the clip.

    That ratio is not that of the row: the product over its tokens is far off. correct="row" is the balance heuristic,
    unbiased for whole rows, for which m is also computed on rollouts that contain such a text by themselves; "none"
    is GRPO's own ratio to the behaviour policy, the text's frequency included.

    The authors' program was read for this. It takes 1 for the first token of a text, where we take its frequency, and
    adapts `keep` to a running failure rate. Its texts are others; give `texts` in the words of your task. None may
    begin another. An answer that is all of a row is cut whole unless `kept` > 0: the paper's rows are agents' of many
    turns, of which all but the last stay.
    """
    base = grpo(group=group, clip=clip, kl=kl)
    sampling = RetryRollouts(group=group, texts=list(texts), chance=chance, keep=keep, kept=kept)
    ratio = TokenRatio() if correct == "none" else MixtureRatio(unit=correct)
    return base.but({"sampling": sampling, "objective.ratio": ratio})


def log_mixture(logp: Tensor, probe: Tensor, share: float) -> Tensor:
    """log((1 - share) exp(logp) + share exp(probe)), elementwise."""
    if share in (0, 1):
        return probe if share else logp
    return torch.logaddexp(logp + math.log1p(-share), probe + math.log(share))


class MixtureRatio(Ratio):
    """Ratio to the mixture that the batch was sampled from, a fraction a of it from a probe
    (`methods.rex_rag.RetryRollouts`), with q the policy that sampled and m the probe:

        unit "token":  log p_t - log((1 - a) q_t + a m_t), decision by decision;
        unit "row":    sum_t log p_t - log((1 - a) prod_t q_t + a prod_t m_t), on every decision of the row.

    "row" is the balance heuristic: whatever the share, the mean over both kinds of rows of ratio times f is the
    expectation of f under p, if m is computed for both kinds. "token" is REX-RAG's: there m is 0 on rows without a
    probe, so that every decision has 1 / (1 - a) times its ratio, and their product that to the power of the row's
    length. share: None takes that of the batch's rows.

    Reads `extras["probe"]` [B] bool, and log q and log m of each decision, `extras["policy_logp"]` and
    `extras["probe_logp"]`. Within +-20. Averaged over a row's decisions, "row" has the gradient of the row's ratio.
    Source: E. Veach and L. Guibas, Optimally combining sampling techniques, 1995; REX-RAG, arXiv:2508.08149.
    """

    unit: Literal["token", "row"] = "token"
    share: float | None = None

    reads = frozenset({"extras.probe", "extras.policy_logp", "extras.probe_logp"})

    def setup(self) -> None:
        if self.share is not None and not 0 <= self.share <= 1:
            raise ValueError(f"methods.rex_rag.MixtureRatio: share must be in [0, 1], found {self.share}")

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        mask, is_probe = experience.mask, experience.full_batch.extras["probe"]
        share = is_probe.double().mean().item() if self.share is None else self.share
        policy_logp, probe = (torch.where(mask, experience.extras[name], 0) for name in ("policy_logp", "probe_logp"))
        if self.unit == "token":
            probe = torch.where(experience.extras["probe"][:, None], probe, NOTHING)
            return (evaluation.logp - log_mixture(policy_logp, probe, share)).clamp(-LIMIT, LIMIT)
        behaviour = log_mixture(policy_logp.sum(1), probe.sum(1), share)
        log_ratio = torch.where(mask, evaluation.logp, 0).sum(1) - behaviour
        return log_ratio.clamp(-LIMIT, LIMIT)[:, None].expand_as(mask)


def trie_logp(texts: Sequence[Sequence[int]]) -> list[list[float]]:
    """Returns the log-frequency of each token after its prefix, among the texts that share the prefix.

    A text's sum is the log of its share of all texts, if none begins another.
    """
    counts: dict[tuple[int, ...], int] = {}
    for text in texts:
        for end in range(len(text) + 1):
            counts[tuple(text[:end])] = counts.get(tuple(text[:end]), 0) + 1
    found = lambda text, end: math.log(counts[tuple(text[: end + 1])] / counts[tuple(text[:end])])  # noqa: E731
    return [[found(text, end) for end in range(len(text))] for text in texts]


class RetrySource(ContinuingSource, EncodingSource, Protocol):
    """A source for retries: rows continue after texts that it encodes."""


class RetryRollouts(Rollouts):
    """Rollouts, and *probes*: failed rows that are cut and continue after one of `texts`, inserted as the policy's own
    decisions.

    Of the rows that are not `right`, each is probed with probability `chance`. A row is cut in its last
    turn, of which the first fraction `kept` of the decisions stays (0: the whole answer is cut off); a text is drawn
    uniformly, and the policy continues after it. Of the probes those stay whose text is likeliest under the policy, by
    its mean log-probability a token: at most `keep` times as many as there are rollouts. They join the groups of the
    rows that they come from.

    The inserted tokens count as decisions, with the `rollout_logp` of the insertion: the frequency of each token among
    the texts that share its prefix, so that a text has 1 / (number of texts). The decisions before them are a failed
    row's, which are likelier among those that failed: the sampler's log-probability - log(failed share) / (decisions
    there).

    `extras["probe"]` [B] bool marks probes. `extras["policy_logp"]` and `extras["probe_logp"]` [B, T] hold the
    log-probability of each decision under the sampling policy and under the probe. The probe's value of a rollout is
    its real log-probability if the rollout's last turn begins with a text and `kept` is 0; for all other rollouts it is
    -1e4, since no probe could have made them. Probes are sampled beyond the rows of the loop's batch. Draws use the
    source's generator. With chance 0 the result equals that of `Rollouts`, number for number, with these marks. Source:
    REX-RAG, arXiv:2508.08149.

    Raises:
        ValueError: a text has no tokens, or begins another, so that the frequencies are no probabilities.
    """

    texts: Sequence[str]
    chance: float = 0.2
    keep: float = 0.08
    kept: float = 0.0
    right: RowMask = IsCorrect()

    writes = frozenset({"extras.probe", "extras.policy_logp", "extras.probe_logp"})
    source_capabilities = frozenset({"continuations", "encoding"})

    def setup(self) -> None:
        super().setup()
        if not self.texts or not 0 <= self.chance <= 1 or self.keep < 0 or not 0 <= self.kept < 1:
            raise ValueError(
                "methods.rex_rag.RetryRollouts: need at least one text, chance in [0, 1], keep >= 0 and kept "
                "in [0, 1), found "
                f"{len(self.texts)} texts, {self.chance}, {self.keep} and {self.kept}"
            )
        if self.support.truncated or self.support.by_entropy is not None or self.adapt is not None:
            raise ValueError(
                "methods.rex_rag.RetryRollouts: what is put into a row may have no probability under top-k "
                "and top-p, and "
                "has no "
                f"temperature of its own; sample with top_k 0, top_p 1 and one temperature, found {self.support} and "
                f"adapt={self.adapt!r}"
            )

    @property
    def compared(self) -> None:
        return None  # probes join the groups

    def refusals(self, situation: Situation) -> Iterator[str]:
        longest = max(self.texts, key=situation.tokens)
        needed = situation.tokens(longest) + 1
        if needed > situation.limit:
            yield (
                f"the text {longest!r} and one token after it need {needed} tokens, and an answer has at most "
                f"{situation.limit}; give shorter texts, or raise limit to {needed} or more"
            )

    def batch_metrics(self, experience: Experience) -> dict[str, float]:
        return {"probe": float(experience.extras["probe"].double().mean())}

    def sampling_overhead(self, kept: float, decisions: float) -> float:
        """Estimates the tokens sampled for each token of a full batch, as if half of the rows fail."""
        return super().sampling_overhead(kept, decisions) + self.chance * 0.5 * (1 - self.kept)

    def gather(self, source: RetrySource) -> Experience:
        batch = super().gather(source)
        texts = [source.encode(text) for text in self.texts]
        _check(self.texts, texts)
        table, (begin, at) = trie_logp(texts), self._cuts(batch, max(map(len, texts)))
        # Rows with a hidden hint cannot continue: the row does not contain the hint.
        failed = ~self.right(batch) & batch.mask.any(1) & ~batch.extras["hinted"]
        share = failed.double().mean()
        own = _noted(batch, failed & False, batch.rollout_logp, self._of_rollouts(batch, begin, texts, table, share))
        if not self.chance or not failed.any():
            return own
        drawn = torch.rand(len(batch), generator=source.generator).to(batch.device) < self.chance
        rows = (failed & drawn).nonzero().flatten()
        if not len(rows):
            return own
        chosen = torch.randint(len(texts), (len(rows),), generator=source.generator).tolist()
        probes = source.extend(batch[rows], 1, at=at[rows], forced_tokens=[texts[i] for i in chosen])
        put_in = _placed(probes, at[rows], [table[i] for i in chosen])
        inside = put_in < 1
        policy_logp = torch.where(inside, source.evaluate(probes).logp, probes.rollout_logp)
        probes = probes.replace(rollout_logp=torch.where(inside, put_in.to(policy_logp.dtype), probes.rollout_logp))
        made = torch.ones_like(at[rows], dtype=torch.bool)
        probes = _noted(probes, made, policy_logp, _as_probe(probes, at[rows], put_in, share))
        likely = ops.row_mean(torch.where(inside, policy_logp, 0), inside)
        best = likely.argsort(descending=True, stable=True)[: round(self.keep * len(batch))].sort().values
        return Experience.join([own, probes[best]]) if len(best) else own

    def _cuts(self, batch: Experience, longest: int) -> tuple[Tensor, Tensor]:
        """Returns the columns [B] of the first decision of each row's last turn, and of the decision before which it is
        cut.

        At least as much of the turn is cut as the longest text needs and one decision after it, if the turn has that
        many.
        """
        width = torch.arange(batch.mask.shape[1], device=batch.device)
        last = torch.where(batch.mask, batch.turn, -1).amax(1, keepdim=True)
        turn = batch.mask & (batch.turn == last)
        length = turn.sum(1, keepdim=True)
        stays = (self.kept * length).floor().minimum((length - longest - 1).clamp(min=0))
        cut = turn & (turn.cumsum(1) > stays)
        return tuple(torch.where(some, width, len(width)).amin(1) for some in (turn, cut))  # type: ignore[return-value]

    def _of_rollouts(
        self,
        batch: Experience,
        begin: Tensor,
        texts: Sequence[Sequence[int]],
        table: Sequence[Sequence[float]],
        failed: Tensor,
    ) -> Tensor:
        """Returns the log-probabilities [B, T] of the rollouts' decisions under the probe."""
        found, width = torch.full_like(batch.rollout_logp, ops.NOTHING), batch.mask.shape[1]
        for text, logp in zip(texts, table, strict=True) if not self.kept else ():
            place = begin[:, None] + torch.arange(len(text), device=batch.device)
            there = place.clamp(max=width - 1)
            alike = batch.extras["tokens"].gather(1, there) == torch.tensor(text, device=batch.device)
            match = (alike & batch.mask.gather(1, there) & (place < width)).all(1, keepdim=True)
            probed = _as_probe(batch, begin, _placed(batch, begin, [logp] * len(batch)), failed)
            found = torch.where(match, probed, found)
        return found


def _check(names: Sequence[str], texts: Sequence[Sequence[int]]) -> None:
    for i, text in enumerate(texts):
        others = [list(other[: len(text)]) for j, other in enumerate(texts) if j != i]
        if not text or list(text) in others:
            raise ValueError(
                f"methods.rex_rag.RetryRollouts: text {names[i]!r} has no tokens or begins another, so that "
                "what follows "
                "it is no "
                "probability; end each text alike, as with a full stop"
            )


def _noted(batch: Experience, probe: Tensor, policy_logp: Tensor, probed: Tensor) -> Experience:
    return batch.replace(extras={"probe": probe, "policy_logp": policy_logp, "probe_logp": probed})


def _as_probe(batch: Experience, at: Tensor, put_in: Tensor, failed: Tensor) -> Tensor:
    """Returns a probe's log-probabilities [B, T] of rows cut at `at` with `put_in` inserted.

    The decisions before the cut are those of failed rows, a fraction `failed` of all: they are likelier among these
    than among all rows.
    """
    before = batch.mask & (torch.arange(batch.mask.shape[1], device=batch.device) < at[:, None])
    shift = -failed.clamp(min=1e-8).log() / before.sum(1, keepdim=True).clamp(min=1)
    policy = torch.where(before, batch.rollout_logp + shift.to(batch.rollout_logp.dtype), batch.rollout_logp)
    return torch.where(put_in < 1, put_in.to(policy.dtype), policy)


def _placed(batch: Experience, at: Tensor, values: Sequence[Sequence[float]]) -> Tensor:
    """Returns each row's values from column `at` on, as far as the row goes, and 1 elsewhere, [B, T] float64."""
    placed = torch.ones(batch.mask.shape, dtype=torch.double, device=batch.device)
    for row, (column, row_values) in enumerate(zip(at.tolist(), values, strict=True)):
        end = min(column + len(row_values), placed.shape[1])
        placed[row, column:end] = torch.tensor(row_values[: end - column], dtype=torch.double, device=batch.device)
    return torch.where(batch.mask, placed, 1)
