"""Detectors of policy violations: the probability that the steps of an episode violate a policy written as text."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from polopt.guards.call_pattern import ANY_TOOL
from polopt.guards.guard import Fallback, Guard, GuardVerdict, ToolCall
from polopt.part import Part

# The last step of an episode that has ended; without it the steps are the beginning of one.
END = "<end>"
# (policy_text, steps) -> probability that the episode violates the policy.
Detector = Callable[[str, Sequence[str]], float]
PADDING, UNKNOWN = 0, 1


class LabelledTrace(NamedTuple):
    """A policy as text, the steps of a whole episode as text, and whether they violate it."""

    policy: str
    steps: Sequence[str]
    violated: bool


def step_text(call: ToolCall) -> str:
    """Returns a call as a step for a detector: the tool's name, and its arguments as JSON."""
    return f"{call.name} {json.dumps(dict(call.arguments), sort_keys=True)}" if call.arguments else call.name


@functools.lru_cache(maxsize=100_000)
def words_of(text: str) -> tuple[str, ...]:
    """Returns the words of a text, in lower case."""
    return tuple(re.findall(r"[a-z0-9_]+", text.lower()))


class ViolationClassifier(Part):
    """Computes the probability of a violation with a small recurrent network.

    A policy's words are encoded in their context, e_l; a step is the sum of the encodings of those policy words that
    occur in it, x_t = sum_l 1[word l in step t] e_l, with a flag for the end of the episode. A second network, which
    begins with the encoding of the whole policy, reads x_1, ..., x_T. A word of `words` has an embedding; others, the
    names of events above all, share one, so that events act by where they stand in the policy alone, and events never
    seen in training act likewise.

    words: the vocabulary of policies. width: of the encodings and states. The network's weights are its state;
    `fit_classifier` trains them.
    """

    words: tuple[str, ...] = ()
    width: int = 32

    def setup(self) -> None:
        if self.width < 2 or self.width % 2:
            raise ValueError(f"ViolationClassifier: width must be even and at least 2, found {self.width}")
        self.embedding = nn.Embedding(len(self.words) + 2, self.width, padding_idx=PADDING)
        self.reader = nn.GRU(self.width, self.width // 2, batch_first=True, bidirectional=True)
        self.monitor = nn.GRU(self.width + 1, self.width, batch_first=True)
        self.head = nn.Linear(self.width, 1)

    def forward(self, policy: str, steps: Sequence[str]) -> float:
        """Returns the probability that the episode of these steps violates the policy; `END` as the last step marks
        an episode that has ended."""
        with torch.no_grad():
            return float(self.logits([policy], [steps]).sigmoid())

    def logits(self, policies: Sequence[str], traces: Sequence[Sequence[str]]) -> Tensor:
        """Returns the logits of a violation [B]."""
        index = {word: i + 2 for i, word in enumerate(self.words)}
        texts = [words_of(policy) or ("",) for policy in policies]
        ids = torch.full((len(texts), max(map(len, texts))), PADDING)
        # Filled in NumPy, as single elements of tensors are slow to set.
        found = np.zeros((len(texts), 1 + max(map(len, traces)), ids.shape[1]), np.float32)
        ends = torch.zeros(*found.shape[:2], 1)
        for b, (text, steps) in enumerate(zip(texts, traces, strict=True)):
            ids[b, : len(text)] = torch.tensor([index.get(word, UNKNOWN) for word in text])
            for t, step in enumerate(steps, start=1):
                if step == END:
                    ends[b, t] = 1.0
                    continue
                words = words_of(step)
                found[b, t, : len(text)] = [word in words for word in text]
        lengths = torch.tensor([len(text) for text in texts])
        packed = nn.utils.rnn.pack_padded_sequence(self.embedding(ids), lengths, batch_first=True, enforce_sorted=False)
        read, summary = self.reader(packed)
        encodings, _ = nn.utils.rnn.pad_packed_sequence(read, batch_first=True)
        start = summary.transpose(0, 1).reshape(1, len(texts), self.width)
        states, _ = self.monitor(torch.cat([torch.from_numpy(found) @ encodings, ends], -1), start)
        last = torch.tensor([len(steps) for steps in traces])
        logits: Tensor = self.head(states[torch.arange(len(texts)), last]).squeeze(-1)
        return logits


def fit_classifier(
    examples: Sequence[LabelledTrace],
    *,
    width: int = 32,
    epochs: int = 8,
    batch: int = 128,
    lr: float = 1e-2,
    seed: int = 0,
) -> ViolationClassifier:
    """Trains a classifier on whole episodes, half of the time, and on random beginnings of them, with the label of the
    whole: the probability after a beginning is that of a violation in the end.

    The vocabulary is the words of the policies that occur in no step.

    examples: labelled traces. width: of the network. epochs, batch, lr: of Adam, whose step size falls to 0. seed: of
    the weights and the batches.

    Raises:
        ValueError: examples of one label alone.
    """  # fmt: skip
    if len({example.violated for example in examples}) < 2:
        raise ValueError("fit_classifier: examples must hold episodes that violate their policy, and others")
    in_steps = {word for example in examples for step in example.steps for word in words_of(step)}
    in_policies = {word for example in examples for word in words_of(example.policy)}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        found = ViolationClassifier(words=tuple(sorted(in_policies - in_steps)), width=width)
        updates = epochs * -(-len(examples) // batch)
        optimiser = torch.optim.Adam(found.parameters(), lr=lr)
        schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, updates)
        for _ in range(epochs):
            for rows in torch.randperm(len(examples)).split(batch):
                chosen = [examples[int(i)] for i in rows]
                logits = found.logits([x.policy for x in chosen], [_beginning(x.steps) for x in chosen])
                target = torch.tensor([float(x.violated) for x in chosen])
                loss = nn.functional.binary_cross_entropy_with_logits(logits, target)
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(found.parameters(), 1.0)
                optimiser.step()
                schedule.step()
    return found.requires_grad_(False)


def _beginning(steps: Sequence[str]) -> list[str]:
    if torch.rand(()) < 0.5:
        return [*steps, END]
    return list(steps[: int(torch.randint(len(steps) + 1, ()))])


class DetectorGuard(Guard):
    """Refuses a call after which a detector takes a violation of a policy to be as likely as `threshold`, or more.

    A detector errs: the guard stands beside exact rules, with `AllowedByAll`, not in their place. A policy that obliges
    makes every beginning suspect; this guard is for policies that forbid.

    policies: texts. detector: any callable of a text and the steps, which returns a probability. threshold: in (0, 1].
    tools: names of the tools that may be called; "*" allows any. fallback: the consequence of a refusal.
    """

    policies: tuple[str, ...]
    detector: Any
    threshold: float = 0.9
    tools: tuple[str, ...] = ()
    fallback: Fallback = "message"

    def setup(self) -> None:
        if not callable(self.detector):
            raise ValueError(
                f"DetectorGuard: detector must be callable, detector(policy, steps), found {self.detector!r:.60}"
            )
        if not 0 < self.threshold <= 1:
            raise ValueError(f"DetectorGuard: threshold must be in (0, 1], found {self.threshold}")

    def forward(self, call: ToolCall, memory: Sequence[ToolCall] = ()) -> GuardVerdict:
        if ANY_TOOL not in self.tools and call.name not in self.tools:
            return GuardVerdict(False, f"the tool {call.name:.60} is not among the tools", self.fallback)
        steps = [step_text(one) for one in (*memory, call)]
        for policy in self.policies:
            probability = float(self.detector(policy, steps))
            # Not a number is no evidence that the call is harmless.
            if not probability < self.threshold:
                return GuardVerdict(False, f"it probably violates a policy: {policy:.200}", self.fallback)
        return GuardVerdict(True)

    @property
    def widens(self) -> bool:
        return True
