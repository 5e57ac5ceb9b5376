"""The tree as a source of experience."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from polopt import ops
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.fields import OLD
from polopt.lab.policy import MixedPolicy
from polopt.lab.steps import TreeSteps
from polopt.lab.tree import TokenTree, TreePolicy
from polopt.policies.lookahead import explore
from polopt.sampling import Start
from polopt.sampling.lookahead import LookaheadConfig
from polopt.sampling.parts import PolicyMixture, RolloutRequest
from polopt.sampling.source_protocols import AnswerTurn
from polopt.support import PLAIN, Support

Draw = Callable[[Experience, torch.Generator], Tensor]
# Extras of each decision if temperatures follow the entropy.
NOTED = ("temperature", "plain_entropy")


class TreeSource:
    """A source of a tree's answers, sampled with their exact probabilities.

    rows: rows of one optimiser batch.
    policy: the learner, whose log-probabilities become `old_logp`.
    behaviour: the sampling policy, the learner itself if None.
    reference: fills `ref_logp`.
    previous: fills `prev_logp`, the learner itself if None.
    needs: fields that the algorithm reads (`algorithm.required_fields`): `entropy` is the sampler's, `value` the
        learner's critic's, `prev_logp` that of `previous`, `extras.greedy_reward` the outcome of the sampler's
        likeliest tokens, `extras.prompt_logp` that of uniform prompts, -log(prompts) over their tokens,
        `extras.old_<name>` the learner's `extras.<name>`.
    demonstrations: [prompts, answers] the frequency of each answer among the demonstrations; None takes the best
        answers alike.
    texts: [prompts, answers] the same for raw texts, with prompts in that proportion too; None takes the
        demonstrations.
    draw: samples a batch's outcomes [B] from their means, `outcome`, and the source's generator; None takes the means.
    signals: name -> [prompts, answers], further signals of an answer.
    policies: frozen policies by name, each of which fills `extras.<name>_logp`.
    hinted: the sampling policy with a hidden hint, by the hint's text.
    variants: [prompts] the prompt that stands for each one with a visible hint appended, by the hint's text.

    drawn, decided: rows and decisions that were sampled so far.

    Prompts come in random order, each once before any repeats.

    Raises:
        ValueError: `ref_logp` is needed and there is no reference; the sampler's answers leave the tree.
    """

    def __init__(
        self,
        tree: TokenTree,
        policy: TreePolicy,
        *,
        rows: int,
        seed: int = 0,
        behaviour: TreePolicy | None = None,
        reference: TreePolicy | None = None,
        previous: TreePolicy | None = None,
        needs: frozenset[str] = frozenset(),
        demonstrations: Tensor | None = None,
        texts: Tensor | None = None,
        draw: Draw | None = None,
        signals: Mapping[str, Tensor] | None = None,
        policies: Mapping[str, TreePolicy] | None = None,
        hinted: Mapping[str, TreePolicy] | None = None,
        variants: Mapping[str, Tensor] | None = None,
    ) -> None:
        if "ref_logp" in needs and reference is None:
            raise ValueError(
                "TreeSource: the algorithm reads ref_logp and there is no reference; give reference=policy"
            )
        self.tree, self.policy, self.rows = tree, policy, rows
        self.behaviour, self.reference, self.draw = behaviour or policy, reference, draw
        self.previous = previous or policy if "prev_logp" in needs else None
        greedy = {"logits"} if "extras.greedy_reward" in needs else set()
        self._old = {name.removeprefix(OLD) for name in needs if name.startswith(OLD)}
        self._outputs = frozenset({"value", "entropy"} & needs | greedy | {f"extras.{name}" for name in self._old})
        tree.log_probabilities(self.behaviour)  # refuses a sampler that leaves the tree
        best = (tree.outcome == tree.outcome.max(1, keepdim=True).values).double()
        self.demonstrations = best if demonstrations is None else demonstrations
        self.written = self.demonstrations if texts is None else texts
        self.generator = torch.Generator().manual_seed(seed)
        self.signals = {f"signal_{name}": value.flatten() for name, value in (signals or {}).items()}
        self.named = dict(policies or {})
        self.hinted, self.variants = dict(hinted or {}), dict(variants or {})
        self._leaf_tables: dict[tuple[Support, str, PolicyMixture | None], tuple[Experience, Tensor]] = {}
        self._queue: list[int] = []
        self.drawn = self.decided = 0

    @property
    def size(self) -> int:
        return self.tree.prompts

    def refresh(self) -> None:
        """Discards the stored evaluations, since the policies have changed."""
        self._leaf_tables.clear()

    def leaf_table(
        self, support: Support = PLAIN, hidden: str = "", mixture: PolicyMixture | None = None
    ) -> tuple[Experience, Tensor]:
        """Returns every leaf with all its fields, and the sampling probabilities [prompts, answers] with this hidden
        hint, or of this mixture of policies.

        Raises:
            ValueError: no policy is given for that hint, or of the mixture's name.
        """
        key = (support, hidden, mixture)
        if key not in self._leaf_tables:
            with torch.no_grad():
                self._leaf_tables[key] = self._make_leaf_table(*key)
        return self._leaf_tables[key]

    def weights(self) -> Tensor:
        """Returns a copy of the learner's parameters, as one vector [P]."""
        return torch.cat([p.detach().flatten() for p in self.policy.parameters()])

    @contextlib.contextmanager
    def using(self, weights: Tensor) -> Iterator[None]:
        """Gives the learner these parameters [P] inside of a `with` statement."""
        own = self.weights()
        self._set_weights(weights)
        try:
            yield
        finally:
            self._set_weights(own)

    @torch.no_grad()
    def _set_weights(self, weights: Tensor) -> None:
        parameters = list(self.policy.parameters())
        for p, values in zip(parameters, weights.split([p.numel() for p in parameters]), strict=True):
            p.copy_(values.view_as(p))
        self.refresh()

    def _mixed(self, mixture: PolicyMixture) -> MixedPolicy:
        others = {"reference": self.reference, "previous": self.previous, **self.named}
        other = others.get(mixture.policy)
        if other is None:
            raise ValueError(
                f"TreeSource: no policy {mixture.policy!r} is given to mix with; give reference=policy, or "
                f"policies={{{mixture.policy!r}: policy}}"
            )
        return MixedPolicy(self.behaviour, other, mixture.share)

    def _make_leaf_table(
        self, support: Support, hidden: str, mixture: PolicyMixture | None
    ) -> tuple[Experience, Tensor]:
        if hidden and hidden not in self.hinted:
            raise ValueError(
                f"TreeSource: no policy is given for the hint {hidden!r}; give one, as hinted={{{hidden!r}: policy}}"
            )
        behaviour = self.hinted[hidden] if hidden else self.behaviour if mixture is None else self._mixed(mixture)
        leaves = self._heated(support)
        evaluation = behaviour.evaluate(leaves, self._outputs)
        own = evaluation if behaviour is self.policy else self.policy.evaluate(leaves, self._outputs)
        extras = {"greedy_reward": self._greedy(leaves, evaluation.logits)} if evaluation.logits is not None else {}
        extras["prompt_logp"] = leaves.outcome.new_full((len(leaves),), -math.log(self.tree.prompts) / self.tree.start)
        own.require({f"extras.{name}" for name in self._old}, by="TreeSource")
        extras |= {f"{name}_logp": named.evaluate(leaves).logp for name, named in self.named.items()}
        extras |= {f"old_{name}": own.extras[name] for name in self._old}
        leaf_table = leaves.replace(
            rollout_logp=evaluation.logp,
            entropy=evaluation.entropy,
            old_logp=own.logp,
            value=own.value,
            ref_logp=self.reference.evaluate(leaves).logp if self.reference is not None else None,
            prev_logp=self.previous.evaluate(leaves).logp if self.previous is not None else None,
            extras={
                **extras,
                **self.signals,
                "index": leaves.group,
                "given": torch.zeros(len(leaves), dtype=torch.long),
                "hinted": torch.full((len(leaves),), bool(hidden)),
            },
        )
        return leaf_table, torch.where(leaves.mask, evaluation.logp, 0).sum(1).exp().view(self.tree.prompts, -1)

    def _heated(self, support: Support) -> Experience:
        """Returns every leaf, with the sampler's temperatures if they follow its entropy."""
        leaves = self.tree.leaves(support)
        if support.by_entropy is None:
            return leaves
        plain = self.behaviour.evaluate(self.tree.leaves(Support(support.temperature)), frozenset({"entropy"})).entropy
        return leaves.replace(extras={"temperature": ops.temperatures(support, plain), "plain_entropy": plain})

    def _greedy(self, leaves: Experience, logits: Tensor) -> Tensor:
        chosen = ((logits.argmax(-1) == leaves.extras["tokens"]) | ~leaves.mask).all(1).view(self.tree.prompts, -1)
        return self.tree.outcome.gather(1, chosen.int().argmax(1, keepdim=True)).expand_as(chosen).flatten()

    def rollout(self, request: RolloutRequest) -> Experience:
        """Samples independent answers to each prompt, or their first tokens, as `Source.rollout` specifies.

        Raises:
            ValueError: no policy is given for a start's hidden hint, or no prompt for a visible one.
        """
        tasks, copies, support = request.tasks, request.counts, request.support
        lookahead, starts = request.lookahead, request.starts
        if lookahead is not None and lookahead.share > 0:
            if request.max_decisions is not None or starts is not None:
                raise ValueError("TreeSource: a look ahead begins at the prompt and ends with the answer")
            batch = self._explored(tasks, copies.tolist(), support, lookahead)
        elif starts is None:  # one draw for all of them
            batch = self._sample_leaves(*self.leaf_table(support, mixture=request.mixture), tasks, copies)
        else:
            sampled = [
                self._start(task, count, start, support)
                for task, count, start in zip(tasks.tolist(), copies.tolist(), starts, strict=True)
                if count
            ]
            batch = Experience.cat(sampled).replace(group=request.group)
        batch = self._until(batch, request.max_decisions)
        batch = batch.replace(extras={"index": tasks[batch.group]})
        return self._settled(batch, torch.zeros_like(batch.lengths))

    def _explored(
        self, tasks: Tensor, copies: Sequence[int], support: Support, lookahead: LookaheadConfig
    ) -> Experience:
        steps, leaf_table = TreeSteps(self.tree, self.behaviour), self.leaf_table(support)[0]
        requested = [(task, n) for task, n in zip(tasks.tolist(), copies, strict=True) if n]
        answers = explore(
            steps,
            [
                leaf_table.extras["tokens"][task * len(self.tree.answers), : self.tree.start].tolist()
                for task, _ in requested
            ],
            copies=[n for _, n in requested],
            branches=[lookahead.branches(n) for _, n in requested],
            rule=lookahead.rule,
            support=support,
            limit=self.tree.horizon,
            ends=steps.ended,
            generator=self.generator,
        )
        number = {answer: i for i, answer in enumerate(self.tree.answers)}
        prompts = torch.tensor([task for task, _ in requested]).repeat_interleave(
            torch.tensor([n for _, n in requested])
        )
        leaf = prompts * len(number) + torch.tensor([number[tuple(answer.tokens)] for answer in answers])
        return leaf_table[leaf].replace(group=torch.arange(len(tasks)).repeat_interleave(torch.tensor(copies)))

    def _start(self, task: int, count: int, start: Start, support: Support) -> Experience:
        """Samples `count` answers to one task that begin as `start` specifies."""
        if start.hint and not start.hidden:
            if start.hint not in self.variants:
                raise ValueError(
                    f"TreeSource: no prompts are given for those that end with {start.hint!r}; give them, as "
                    f"variants={{{start.hint!r}: numbers}}"
                )
            task = int(self.variants[start.hint][task])
        leaf_table, probs = self.leaf_table(support, start.hint if start.hidden else "")
        rows = slice(task * probs.shape[1], (task + 1) * probs.shape[1])
        first, likely = leaf_table[torch.arange(rows.start, rows.stop)], probs[task]
        solution = self._solution(task)
        given = min(start.given, len(self.tree.answers[solution]) - 1)
        if given:
            prefix = first.mask[solution] & (torch.arange(first.mask.shape[1]) < self.tree.start + given)
            tokens = first.extras["tokens"]
            alike = (~prefix | (first.mask & (tokens == tokens[solution]))).all(1)
            likely = torch.where(first.mask & ~prefix, first.rollout_logp, 0).sum(1).exp() * alike
            first = first.replace(mask=first.mask & ~prefix, extras={"given": torch.full_like(first.group, given)})
        return first[torch.multinomial(likely, count, replacement=True, generator=self.generator)]

    def _solution(self, task: int) -> int:
        """Returns the answer that is demonstrated most often, the first of several."""
        return int(self.demonstrations[task].argmax())

    @property
    def kinds(self) -> list[str]:
        """The kinds of the tree's prompts, in the order in which they come first."""
        return list(dict.fromkeys(self.tree.kinds))

    def kinds_of(self, tasks: Tensor) -> list[str]:
        return [self.tree.kinds[task] for task in tasks.tolist()]

    def prompts(self, tasks: Tensor) -> list[str]:
        """Returns the prompts' tokens as numbers between spaces, as `encode` reads them."""
        first = self.tree.leaves().extras["tokens"][tasks * len(self.tree.answers), : self.tree.start]
        return [" ".join(map(str, row)) for row in first.tolist()]

    def solution_lengths(self, tasks: Tensor) -> Tensor:
        return torch.tensor([len(self.tree.answers[self._solution(task)]) for task in tasks.tolist()])

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of a text of numbers between spaces.

        Raises:
            ValueError: a word is not a number.
        """
        words = text.split()
        if not all(word.isdigit() for word in words):
            raise ValueError(f"TreeSource: a text on a tree is numbers between spaces, found {text!r}")
        return [int(word) for word in words]

    @torch.no_grad()
    def evaluate(self, experience: Experience, needs: frozenset[str] = frozenset()) -> Evaluation:
        return self.policy.evaluate(experience, needs)

    def gradient_norms(self, experience: Experience, block: str | None = "") -> Tensor:
        """Returns gradient norms as `GradientNormSource.gradient_norms` specifies.

        A policy without names for its parameters has them all in every block, and no policy has an input embedding: all
        parameters stand for it.

        Raises:
            ValueError: no parameter has such a name.
        """
        named = list(getattr(self.policy, "named_parameters", lambda: [("", p) for p in self.policy.parameters()])())
        parameters = [p for name, p in named if (block or "") in name or not name]
        if not parameters:
            raise ValueError(f"TreeSource: no parameter's name contains {block!r}; there are {[n for n, _ in named]}")
        logp = torch.where(experience.mask, self.policy.evaluate(experience).logp, 0).sum(1)
        norms = []
        for one in logp:
            gradients = torch.autograd.grad(one, parameters, retain_graph=True, allow_unused=True)
            norms.append(torch.stack([s.norm() for s in gradients if s is not None]).norm())
        return torch.stack(norms)

    def extend(
        self,
        experience: Experience,
        copies: int,
        max_decisions: int | None = None,
        at: Tensor | None = None,
        forced_tokens: Sequence[Sequence[int]] | None = None,
    ) -> Experience:
        """Continues rows as `ContinuingSource.extend` specifies, with exact conditional probabilities given their
        beginning.

        Raises:
            ValueError: a row has ended, or no answer of the tree begins like a row with its forced tokens.
        """
        leaf_table = self.leaf_table(experience.support)[0]
        leaf, columns, given = (
            experience.extras["leaf"],
            torch.arange(leaf_table.mask.shape[1]),
            experience.extras["given"],
        )
        begin = self.tree.start + given + experience.lengths if at is None else at
        if (begin - self.tree.start >= leaf_table.lengths[leaf]).any():
            raise ValueError("TreeSource.extend: some rows have ended; leave them out, or give the columns `at`")
        words = [list(ids) for ids in forced_tokens] if forced_tokens is not None else [[]] * len(leaf)
        decided = (columns < begin[:, None]) & leaf_table.mask[leaf]
        tokens, forced, fixed = leaf_table.extras["tokens"], leaf_table.extras["tokens"][leaf], decided.clone()
        for row, (ids, place) in enumerate(zip(words, begin.tolist(), strict=True)):
            forced[row, place : place + len(ids)] = torch.tensor(ids, dtype=torch.long)
            fixed[row, place : place + len(ids)] = True
        # [rows, leaves] the leaves that begin like the row, and the probability of each from there on.
        alike = (~fixed[:, None] | (leaf_table.mask & (tokens == forced[:, None]))).all(2)
        alike &= (tokens[:, : self.tree.start] == forced[:, None, : self.tree.start]).all(2)
        if not alike.any(1).all():
            raise ValueError(
                "TreeSource.extend: no answer of the tree begins like a row and continues with the forced tokens"
            )
        rest = torch.where(fixed[:, None] | ~leaf_table.mask, 0, leaf_table.rollout_logp).sum(2)
        chosen = torch.multinomial(rest.exp() * alike, copies, replacement=True, generator=self.generator).flatten()
        rows = torch.arange(len(leaf)).repeat_interleave(copies)
        batch = _as_sampled(leaf_table[chosen], experience[rows], decided[rows])
        prefix = columns < self.tree.start + given[rows, None]
        batch = batch.replace(
            mask=batch.mask & ~prefix,
            rollout_logp=torch.where(fixed[rows] & ~decided[rows], 0, batch.rollout_logp),
            extras={"given": given[rows], "index": experience.extras["index"][rows]},
        )
        before = (fixed[rows] & ~prefix).sum(1)
        return self._settled(self._until(batch, max_decisions, before), before)

    def _until(self, batch: Experience, window: int | None, before: Tensor | int = 0) -> Experience:
        """Returns the first `before` + `window` decisions of each row. An unfinished row keeps only rewards of its
        decisions."""
        if window is None:
            return batch
        begin = self.tree.start + batch.extras["given"] + before
        left = torch.arange(batch.mask.shape[1]) < (begin + torch.as_tensor(window)).reshape(-1, 1)
        mask = batch.mask & left
        ended = mask.sum(1) == batch.lengths
        reward = torch.where(ended, batch.reward, 0) if batch.reward.ndim == 1 else torch.where(mask, batch.reward, 0)
        outcome = reward if reward.ndim == 1 else reward.sum(1)
        return batch.replace(mask=mask, terminated=ended, reward=reward, outcome=outcome)

    def _settled(self, batch: Experience, before: Tensor, rows: int | None = None) -> Experience:
        """Samples the outcomes of rows that have ended, and counts the sampled rows and decisions.

        before: [B] decisions of each row that are not counted, since they were sampled earlier.
        rows: rows to count, None for all.
        """
        self.drawn += len(batch) if rows is None else rows
        self.decided += int((batch.lengths - before).sum())
        if self.draw is not None:
            outcome = torch.where(batch.terminated, self.draw(batch, self.generator), batch.outcome)
            batch = batch.replace(outcome=outcome, reward=outcome)
        reward = batch.reward if batch.reward.ndim == 2 else ops.per_decision_reward(batch.reward, batch.mask)
        return batch.replace(extras={"answer_reward": reward})

    def demonstrate(self, rows: int) -> Experience:
        """Returns demonstrated answers to the next `rows` prompts, with outcome 1."""
        return self._shown(self.demonstrations, self.take(rows))

    def pairs(self, rows: int, tasks: Tensor | None = None) -> Experience:
        """Samples two answers to each of the next rows / 2 prompts, or of these, with Bradley-Terry preferences of the
        outcomes as rewards."""
        drawn = self.rollout(RolloutRequest(self.take(rows // 2) if tasks is None else tasks, 2, PLAIN))
        one, other = drawn.outcome.view(-1, 2).T
        order = torch.arange(len(drawn)).view(-1, 2)
        swapped = torch.rand(len(one), generator=self.generator) > torch.sigmoid(one - other).float()
        order = torch.where(swapped[:, None], order.flip(1), order).flatten()
        outcome = drawn.outcome.new_tensor([1.0, 0.0]).repeat(len(one))
        batch = drawn[order].replace(rollout_logp=None, entropy=None, outcome=outcome, reward=outcome)
        return batch.replace(extras={"answer_reward": ops.per_decision_reward(outcome, batch.mask)})

    def rated(self, rows: int, *, mismatched: bool = False) -> Experience:
        """Samples an answer to each of the next prompts, with its outcome as its score. With `mismatched` each prompt
        is then put together with the answer to the prompt before it."""
        drawn = self.rollout(RolloutRequest(self.take(rows), 1, PLAIN)).replace(rollout_logp=None, entropy=None)
        if not mismatched:
            return drawn
        answers, leaf = len(self.tree.answers), drawn.extras["leaf"]
        other = leaf // answers * answers + leaf.roll(1) % answers
        strange = self.leaf_table()[0][other].replace(group=drawn.group, rollout_logp=None, entropy=None)
        nothing = torch.zeros_like(drawn.outcome)
        strange = strange.replace(outcome=nothing, reward=nothing)
        reward = ops.per_decision_reward(nothing, strange.mask)
        strange = strange.replace(extras={"answer_reward": reward, "index": drawn.extras["index"]})
        flags = torch.arange(2 * len(drawn)) >= len(drawn)
        return Experience.join([drawn, strange.with_missing_fields_of(drawn)]).replace(extras={"mismatched": flags})

    def demonstrate_groups(self, experience: Experience) -> Experience:
        """Returns a demonstrated answer to each group's prompt, with outcome 1."""
        first = ops.group_first(experience.group)
        tasks = experience.extras["leaf"][first] // len(self.tree.answers)
        return self._shown(self.demonstrations, tasks).replace(group=experience.group[first])

    def texts(self, rows: int, length: int) -> Experience:
        """Samples independent texts, each an answer to a prompt. They are short, so `length` cuts nothing."""
        drawn = torch.multinomial(self.written.flatten(), rows, replacement=True, generator=self.generator)
        return self._as_solved(self.leaf_table()[0][drawn].replace(group=torch.arange(rows)))

    def _shown(self, probs: Tensor, tasks: Tensor) -> Experience:
        return self._as_solved(self._sample_leaves(self.leaf_table()[0], probs, tasks, torch.ones_like(tasks)))

    def _as_solved(self, demonstrations: Experience) -> Experience:
        return demonstrations.replace(outcome=torch.ones_like(demonstrations.outcome))

    def restore_rows(self, experience: Experience) -> Experience:
        """Returns rows as `RestoringSource.restore_rows` specifies, with evaluations by the current learner, reference
        and critic."""
        now = self.leaf_table(experience.support)[0][experience.extras["leaf"]]
        stored = {name: getattr(experience, name) for name in ("mask", "outcome", "reward", "terminated")}
        extras = {name: experience.extras[name] for name in ("index", "answer_reward", "given", "hinted")}
        return _as_sampled(now, experience, experience.mask).replace(extras=extras, **stored)

    def task_ids(self, tasks: Tensor) -> list[str]:
        return [str(task) for task in tasks.tolist()]

    def answers(self, experience: Experience) -> list[list[str]]:
        """Returns each row's answer as numbers between spaces."""
        texts = [" ".join(map(str, answer)) for answer in self.tree.answers]
        return [[texts[leaf % len(texts)]] for leaf in experience.extras["leaf"].tolist()]

    def import_answers(
        self, tasks: Tensor, answers: Sequence[Sequence[Sequence[AnswerTurn]]], support: Support
    ) -> Experience:
        """Returns rows as `ImportingSource.import_answers` specifies; they do not count as sampled.

        Raises:
            ValueError: an answer is not in the tree.
        """
        number = {answer: i for i, answer in enumerate(self.tree.answers)}
        leaves, group = [], []
        for place, (task, rows) in enumerate(zip(tasks.tolist(), answers, strict=True)):
            for row in rows:
                tokens = tuple(t for turn in row for t in (self.encode(turn) if isinstance(turn, str) else turn))
                # What comes after the end of an answer is not played.
                tokens = next((tokens[:n] for n in range(1, len(tokens) + 1) if tokens[:n] in number), tokens)
                if tokens not in number:
                    raise ValueError(f"TreeSource.import_answers: the tree has no answer {row!r}")
                leaves.append(task * len(number) + number[tokens])
                group.append(place)
        batch = self.leaf_table(support)[0][torch.tensor(leaves)].replace(group=torch.tensor(group))
        return self._settled(batch, batch.lengths, rows=0)

    def take(self, count: int) -> Tensor:
        while len(self._queue) < count:
            self._queue += torch.randperm(self.size, generator=self.generator).tolist()
        tasks = torch.tensor(self._queue[:count])
        del self._queue[:count]
        return tasks

    def _sample_leaves(self, leaf_table: Experience, probs: Tensor, tasks: Tensor, copies: Tensor) -> Experience:
        most = max([1, *copies.tolist()])
        answers = torch.multinomial(probs[tasks], most, replacement=True, generator=self.generator)
        batch = leaf_table[(answers + tasks[:, None] * probs.shape[1])[torch.arange(most) < copies[:, None]]]
        return batch.replace(group=torch.arange(len(tasks)).repeat_interleave(copies))


def _as_sampled(batch: Experience, record: Experience, at: Tensor) -> Experience:
    """Returns the batch with the record's groups, and with the sampler's original values at the decisions `at` [B,
    T]."""

    def pick(now: Tensor, then: Tensor) -> Tensor:
        return torch.where(at, then, now)

    return batch.replace(
        rollout_logp=pick(batch.rollout_logp, record.rollout_logp),
        entropy=None if batch.entropy is None else pick(batch.entropy, record.entropy),
        group=record.group,
        extras={n: pick(batch.extras[n], record.extras[n]) for n in NOTED if n in record.extras},
    )
