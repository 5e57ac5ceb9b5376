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


class TreeSource:
    """Deals answers of a tree, drawn with their exact probabilities, to an algorithm's sampling part.

    rows: how many rows one optimiser batch has. policy: the learner, whose log-probabilities become
    `old_logp`. behaviour: who samples, the learner itself if None. reference: fills `ref_logp`. needs: fields
    that the algorithm reads (`algorithm.all_needs`): `entropy` is the sampler's, `value` the learner's critic's,
    `prev_logp` that of `previous` (of the learner itself if None), `extras.greedy_reward` the outcome of the
    sampler's likeliest tokens, `extras.prompt_logp` that of evenly likely prompts, -log(prompts) over their tokens,
    `extras.old_<name>` what the learner says as `extras.<name>`. demonstrations: [prompts, answers] how often each
    answer is demonstrated; None takes the best answers alike. draw: what a batch's answers pay this time, [B], from
    what they pay on average, `outcome`, and the source's generator; None pays exactly that.

    drawn: how many rows it has dealt so far.

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
        self.generator = torch.Generator().manual_seed(seed)
        self._decks: dict[Support, tuple[Experience, Tensor]] = {}
        self._queue: list[int] = []
        self.drawn = 0

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

    def rollout(self, prompts: int, group: int, support: Support) -> Experience:
        """`group` independent answers to each of the next `prompts` prompts."""
        deck, odds = self.deck(support)
        batch = self._deal(deck, odds, prompts, group)
        if self.draw is None:
            return batch
        outcome = self.draw(batch, self.generator)
        return batch.replace(outcome=outcome, reward=outcome)

    def demonstrate(self, rows: int) -> Experience:
        """Demonstrated answers to the next `rows` prompts, with outcome 1."""
        shown = self._deal(self.deck()[0], self.demonstrations, rows, 1)
        return shown.replace(outcome=torch.ones_like(shown.outcome))

    def recall(self, experience: Experience) -> Experience:
        """As `Source.recall`: whoever sampled the rows, the learner, the reference and the critic judge them now."""
        now = self.deck(experience.support)[0][experience.extras["leaf"]]
        kept = {"logp": experience.logp, "entropy": experience.entropy, "group": experience.group}
        return now.replace(**kept)

    def _deal(self, deck: Experience, odds: Tensor, prompts: int, group: int) -> Experience:
        while len(self._queue) < prompts:
            self._queue += torch.randperm(self.tree.prompts, generator=self.generator).tolist()
        asked = torch.tensor(self._queue[:prompts])
        del self._queue[:prompts]
        answers = torch.multinomial(odds[asked], group, replacement=True, generator=self.generator)
        batch = deck[(answers + asked[:, None] * odds.shape[1]).flatten()]
        self.drawn += len(batch)
        return batch.replace(group=torch.arange(prompts).repeat_interleave(group))
