"""The tree as a place where experience comes from."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from polopt import ops
from polopt.experience import OLD, Experience
from polopt.lab.tree import Policy, TokenTree
from polopt.support import PLAIN, Support

Draw = Callable[[Experience, torch.Generator], Tensor]
# What a sampler notes of each decision where temperatures follow the entropy.
NOTED = ("temperature", "plain_entropy")


class TreeSource:
    """Deals answers of a tree, drawn with their exact probabilities, to an algorithm's sampling part.

    rows: how many rows one optimiser batch has. policy: the learner, whose log-probabilities become
    `old_logp`. behaviour: who samples, the learner itself if None. reference: fills `ref_logp`. needs: fields
    that the algorithm reads (`algorithm.all_needs`): `entropy` is the sampler's, `value` the learner's critic's,
    `prev_logp` that of `previous` (of the learner itself if None), `extras.greedy_reward` the outcome of the
    sampler's likeliest tokens, `extras.prompt_logp` that of evenly likely prompts, -log(prompts) over their tokens,
    `extras.old_<name>` what the learner says as `extras.<name>`. demonstrations: [prompts, answers] how often each
    answer is demonstrated; None takes the best answers alike. texts: the same for what raw texts say, prompts in that
    proportion too; None takes the demonstrations. draw: what a batch's answers pay this time, [B], from what they pay
    on average, `outcome`, and the source's generator; None pays exactly that.

    drawn, decided: how many rows, and how many decisions, it has sampled so far.

    Prompts come in random order, all of them before any comes again.

    Raises:
        ValueError: `ref_logp` is needed and there is no reference; the sampler's answers leave the tree.
    """

    def __init__(
        self,
        tree: TokenTree,
        policy: Policy,
        *,
        rows: int,
        seed: int = 0,
        behaviour: Policy | None = None,
        reference: Policy | None = None,
        previous: Policy | None = None,
        needs: frozenset[str] = frozenset(),
        demonstrations: Tensor | None = None,
        texts: Tensor | None = None,
        draw: Draw | None = None,
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
        self._asked = frozenset({"value", "entropy"} & needs | greedy | {f"extras.{name}" for name in self._old})
        tree.log_probabilities(self.behaviour)  # refuses a sampler that leaves the tree
        best = (tree.outcome == tree.outcome.max(1, keepdim=True).values).double()
        self.demonstrations = best if demonstrations is None else demonstrations
        self.written = self.demonstrations if texts is None else texts
        self.generator = torch.Generator().manual_seed(seed)
        self._decks: dict[Support, tuple[Experience, Tensor]] = {}
        self._queue: list[int] = []
        self.drawn = self.decided = 0

    def refresh(self) -> None:
        """The policies have changed: ask them again."""
        self._decks.clear()

    def deck(self, support: Support = PLAIN) -> tuple[Experience, Tensor]:
        """Every leaf with everything that is known of it, and [prompts, answers] how often it is drawn."""
        if support not in self._decks:
            with torch.no_grad():
                self._decks[support] = self._make_deck(support)
        return self._decks[support]

    def _make_deck(self, support: Support) -> tuple[Experience, Tensor]:
        leaves = self._heated(support)
        said = self.behaviour.evaluate(leaves, self._asked)
        own = said if self.behaviour is self.policy else self.policy.evaluate(leaves, self._asked)
        extras = {"greedy_reward": self._greedy(leaves, said.logits)} if said.logits is not None else {}
        extras["prompt_logp"] = leaves.outcome.new_full((len(leaves),), -math.log(self.tree.prompts) / self.tree.start)
        own.require({f"extras.{name}" for name in self._old}, by="TreeSource")
        extras |= {f"old_{name}": own.extras[name] for name in self._old}
        deck = leaves.replace(
            logp=said.logp,
            entropy=said.entropy,
            old_logp=own.logp,
            value=own.value,
            ref_logp=self.reference.evaluate(leaves).logp if self.reference is not None else None,
            prev_logp=self.previous.evaluate(leaves).logp if self.previous is not None else None,
            extras=extras,
        )
        return deck, torch.where(leaves.mask, said.logp, 0).sum(1).exp().view(self.tree.prompts, -1)

    def _heated(self, support: Support) -> Experience:
        """Every leaf, with the temperatures that the sampler has there if they follow its entropy."""
        leaves = self.tree.leaves(support)
        if support.by_entropy is None:
            return leaves
        plain = self.behaviour.evaluate(self.tree.leaves(Support(support.temperature)), frozenset({"entropy"})).entropy
        return leaves.replace(extras={"temperature": ops.temperatures(support, plain), "plain_entropy": plain})

    def _greedy(self, leaves: Experience, logits: Tensor) -> Tensor:
        chosen = ((logits.argmax(-1) == leaves.extras["tokens"]) | ~leaves.mask).all(1).view(self.tree.prompts, -1)
        return self.tree.outcome.gather(1, chosen.int().argmax(1, keepdim=True)).expand_as(chosen).flatten()

    def rollout(self, prompts: int, group: int, support: Support, window: int | None = None) -> Experience:
        """`group` independent answers to each of the next `prompts` prompts, or their first `window` tokens."""
        deck, odds = self.deck(support)
        batch = self._until(self._deal(deck, odds, self._next(prompts), group), window)
        return self._settled(batch, torch.zeros_like(batch.lengths))

    def extend(
        self, experience: Experience, copies: int, window: int | None = None, at: Tensor | None = None
    ) -> Experience:
        """As `Source.extend`: answers drawn with their exact probabilities, given how they begin.

        Raises:
            ValueError: a row has ended.
        """
        deck = self.deck(experience.support)[0]
        leaf, columns = experience.extras["leaf"], torch.arange(deck.mask.shape[1])
        stands = self.tree.start + experience.lengths if at is None else at
        if (stands - self.tree.start >= deck.lengths[leaf]).any():
            raise ValueError("TreeSource.extend: some rows have ended; leave them out, or say `at` which column")
        said = (columns < stands[:, None]) & deck.mask[leaf]
        tokens = deck.extras["tokens"]
        # [rows, leaves] which leaves begin like the row, and how likely each is from there on.
        alike = (~said[:, None] | (deck.mask & (tokens == tokens[leaf][:, None]))).all(2)
        alike &= (tokens[:, : self.tree.start] == tokens[leaf][:, None, : self.tree.start]).all(2)
        rest = torch.where(said[:, None] | ~deck.mask, 0, deck.logp).sum(2)
        chosen = torch.multinomial(rest.exp() * alike, copies, replacement=True, generator=self.generator).flatten()
        rows = torch.arange(len(leaf)).repeat_interleave(copies)
        before = said[rows]
        batch = _as_sampled(deck[chosen], experience[rows], before)
        return self._settled(self._until(batch, window, before.sum(1)), before.sum(1))

    def _until(self, batch: Experience, window: int | None, before: Tensor | int = 0) -> Experience:
        """The first `before` + `window` decisions of each row. One that has not ended was paid only on the way."""
        if window is None:
            return batch
        left = torch.arange(batch.mask.shape[1]) < (self.tree.start + before + torch.as_tensor(window)).reshape(-1, 1)
        mask = batch.mask & left
        ended = mask.sum(1) == batch.lengths
        reward = torch.where(ended, batch.reward, 0) if batch.reward.ndim == 1 else torch.where(mask, batch.reward, 0)
        outcome = reward if reward.ndim == 1 else reward.sum(1)
        return batch.replace(mask=mask, terminated=ended, reward=reward, outcome=outcome)

    def _settled(self, batch: Experience, before: Tensor) -> Experience:
        """Pay the rows that have ended, and note what the batch cost: `before` [B] decisions were there already."""
        self.drawn += len(batch)
        self.decided += int((batch.lengths - before).sum())
        if self.draw is None:
            return batch
        outcome = torch.where(batch.terminated, self.draw(batch, self.generator), batch.outcome)
        return batch.replace(outcome=outcome, reward=outcome)

    def demonstrate(self, rows: int) -> Experience:
        """Demonstrated answers to the next `rows` prompts, with outcome 1."""
        return self._shown(self.demonstrations, self._next(rows))

    def solve(self, experience: Experience) -> Experience:
        """A demonstrated answer to each group's prompt, with outcome 1."""
        first = ops.group_first(experience.group)
        asked = experience.extras["leaf"][first] // len(self.tree.answers)
        return self._shown(self.demonstrations, asked).replace(group=experience.group[first])

    def texts(self, rows: int, length: int) -> Experience:
        """Texts, drawn independently, each an answer to a prompt. They are short, so `length` cuts nothing."""
        drawn = torch.multinomial(self.written.flatten(), rows, replacement=True, generator=self.generator)
        return self._paid(self.deck()[0][drawn].replace(group=torch.arange(rows)))

    def _shown(self, odds: Tensor, asked: Tensor) -> Experience:
        return self._paid(self._deal(self.deck()[0], odds, asked, 1))

    def _paid(self, shown: Experience) -> Experience:
        return shown.replace(outcome=torch.ones_like(shown.outcome))

    def recall(self, experience: Experience) -> Experience:
        """As `Source.recall`: whoever sampled the rows, the learner, the reference and the critic judge them now."""
        now = self.deck(experience.support)[0][experience.extras["leaf"]]
        paid = {name: getattr(experience, name) for name in ("mask", "outcome", "reward", "terminated")}
        return _as_sampled(now, experience, experience.mask).replace(**paid)

    def _next(self, prompts: int) -> Tensor:
        while len(self._queue) < prompts:
            self._queue += torch.randperm(self.tree.prompts, generator=self.generator).tolist()
        asked = torch.tensor(self._queue[:prompts])
        del self._queue[:prompts]
        return asked

    def _deal(self, deck: Experience, odds: Tensor, asked: Tensor, group: int) -> Experience:
        answers = torch.multinomial(odds[asked], group, replacement=True, generator=self.generator)
        batch = deck[(answers + asked[:, None] * odds.shape[1]).flatten()]
        return batch.replace(group=torch.arange(len(asked)).repeat_interleave(group))


def _as_sampled(batch: Experience, record: Experience, at: Tensor) -> Experience:
    """The batch with what the sampler said of the decisions `at` [B, T] when it took them, and the record's groups."""

    def pick(now: Tensor, then: Tensor) -> Tensor:
        return torch.where(at, then, now)

    return batch.replace(
        logp=pick(batch.logp, record.logp),
        entropy=None if batch.entropy is None else pick(batch.entropy, record.entropy),
        group=record.group,
        extras={n: pick(batch.extras[n], record.extras[n]) for n in NOTED if n in record.extras},
    )
