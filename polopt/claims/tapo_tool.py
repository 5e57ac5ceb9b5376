"""These programs measure what the paper of TAPO, the tool-augmented one, claims."""

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.features.masks import WellFormed
from polopt.lab import TokenTree, train
from polopt.lab.effects import Less, More, effect
from polopt.lab.policy import LinearPolicy
from polopt.lab.shapes import coin
from polopt.methods.dapo import dapo
from polopt.methods.tapo_tool import tapo_tool
from polopt.rewards import OutcomeReward, OverlongPenalty, SumOfRewards
from polopt.rewards.parts import Reward

PROMPTS, CHOICES, FEATURES = 24, 3, 24
# Answers: whether a tool is called, whether the call can be read, and what is answered.
ANSWERS = [(call, form, choice) for call in range(2) for form in range(2) for choice in range(CHOICES)]


class AnyCall(Reward):
    """1 for a row that called a tool: what the rewards have that praise the use of tools."""

    reads = frozenset({"extras.signal_calls"})

    def forward(self, experience: Experience) -> torch.Tensor:
        return (experience.extras["signal_calls"] > 0).double()


def calls_rewarded() -> Algorithm:
    """DAPO with a tenth of a reward for a call."""
    right = OutcomeReward(scale=2, shift=-1)
    return dapo(group=4).but(reward=SumOfRewards(terms=[right, AnyCall()], weights=(1.0, 0.1)))


def _asked(seed: int) -> tuple[TokenTree, LinearPolicy, torch.Tensor, torch.Tensor]:
    """Returns tasks of which every second needs a call, a policy half of whose answers call, and half of these so that
    they can be read, which answers call, and which call in vain, both [prompts, answers]."""
    draw = torch.Generator().manual_seed(seed)
    right = torch.randint(CHOICES, (PROMPTS,), generator=draw).tolist()

    def worth(prompt: int, answer: tuple[int, ...]) -> float:
        call, form, choice = answer
        knows = prompt % 2 == 0 or (call == 1 and form == 0)
        return float(choice == right[prompt]) if knows else 1 / CHOICES

    tree = TokenTree(CHOICES, ANSWERS, worth, PROMPTS)
    own = torch.randn(len(tree.choices), FEATURES, generator=draw, dtype=torch.double) / FEATURES**0.5
    calls = torch.tensor([[float(call) for call, _, _ in ANSWERS]] * PROMPTS).double()
    lost = torch.tensor([[float(call and form) for call, form, _ in ANSWERS]] * PROMPTS).double()
    return tree, LinearPolicy(tree, own), calls, lost


@effect(
    "Tools are called where they are needed and less where they are not, at the same share of right answers.",
    kind="headline",
    method=tapo_tool,
    controls={"DAPO": lambda: dapo(group=4), "calls rewarded": calls_rewarded},
    step_sizes=(6.0, 18.0, 54.0, 162.0),
    criteria=[Less("needless calls", by=-0.05), More("success", by=-0.02)],
    best=More("success", by=0.0),
    trials=5,
    seeds=10,
    cost="slow",
    refuted=True,
    note="24 tasks that share features, every second of which needs a call that can be read; half of the calls cannot "
    "at first. 60 batches of 4 answers to each. Step sizes are chosen by the share of right answers."
    " What the form is learned by is taken from right answers.",
)
def calls_where_needed(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return _trained(algorithm, seed, step_size)


@effect(
    "Calls come to be written so that they can be read, also where an answer is right without one.",
    kind="part",
    method=tapo_tool,
    controls={"DAPO": lambda: dapo(group=4)},
    step_sizes=(6.0, 18.0, 54.0, 162.0),
    criteria=[Less("lost calls", by=-0.05)],
    best=More("success", by=0.0),
    trials=5,
    seeds=10,
    cost="slow",
    note="As for the headline; answers with a call that cannot be read.",
)
def learns_the_form(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return _trained(algorithm, seed, step_size)


def _trained(algorithm: Algorithm, seed: int, step_size: float) -> dict[str, float]:
    tree, policy, calls, lost = _asked(seed)
    ways = {"rate": step_size, "rows": PROMPTS, "seed": seed, "draw": coin}
    train(algorithm, tree, policy, steps=60, signals={"calls": calls, "malformed": lost}, **ways)  # type: ignore[arg-type]
    probability = tree.log_probabilities(policy).detach().exp()
    return {
        "needless calls": (probability * calls).sum(1)[::2].mean().item(),
        "needed calls": (probability * (calls - lost)).sum(1)[1::2].mean().item(),
        "lost calls": (probability * lost).sum(1).mean().item(),
        "success": (probability * tree.outcome).sum(1).mean().item(),
    }


def _batch() -> tuple[Experience, torch.Tensor]:
    """Returns rows of all cases, of a limit of ten decisions, and their rewards by the paper's rules, written out."""
    # Outcome, turns that were lost, whether it ended by itself, decisions; reward.
    rows = (
        (1.0, 0, True, 4, 1.0),
        (0.0, 0, True, 4, 0.0),
        (0.4, 0, True, 8, 0.4),
        (1.0, 1, True, 4, -1.0),
        (0.0, 2, True, 4, -1.0),
        (1.0, 0, True, 9, 1.0 - 0.5),
        (0.0, 0, False, 10, -1.0 - 1.0),
        (0.0, 3, True, 10, -1.0 - 1.0),
    )
    outcome, lost, ended, length, reward = (torch.tensor(column) for column in zip(*rows, strict=True))
    batch = Experience(
        mask=torch.arange(10) < length[:, None],
        outcome=outcome.double(),
        terminated=ended,
        truncated=~ended,
        horizon=10,
        extras={"signal_malformed": lost.double()},
    )
    return batch, reward.double()


@claim(
    "An answer that breaks the form has reward -1, any other its score, and a soft penalty of length comes on top.",
    kind="identity",
    baseline="DAPO's reward",
)
def form_comes_first() -> Finding:
    batch, reward = _batch()
    off = (tapo_tool().reward(batch) - reward).abs().max().item()
    moved = (dapo().reward(batch) - reward).abs().max().item()
    return Finding(
        measured={"largest error": off, "DAPO's": moved},
        criterion="error < 1e-6 in eight rows, DAPO's > 0.5",
        holds=off < 1e-6 and moved > 0.5,
    )


@claim(
    "Where every answer is well formed it is DAPO on scores of 0 and 1, in advantages and gradient.",
    kind="limit",
    baseline="the same rows, one of which lost a turn",
)
def is_dapo_without_errors() -> Finding:
    def credited(algorithm: Algorithm, lost: float) -> torch.Tensor:
        batch = Experience(
            mask=torch.ones(8, 2, dtype=torch.bool),
            outcome=torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0]).double(),
            group=torch.arange(8) // 4,
            terminated=torch.ones(8, dtype=torch.bool),
            truncated=torch.zeros(8, dtype=torch.bool),
            rollout_logp=-torch.ones(8, 2).double(),
            horizon=10,
            extras={"signal_malformed": torch.tensor([lost, *[0.0] * 7]).double()},
        )
        return algorithm.compute_advantages(batch).advantage

    plain = dapo(group=4).but(reward=SumOfRewards(terms=[OutcomeReward(), OverlongPenalty()]))
    off = (credited(tapo_tool(), 0.0) - credited(plain, 0.0)).abs().max().item()
    moved = (credited(tapo_tool(), 1.0) - credited(plain, 1.0)).abs().max().item()
    return Finding(
        measured={"largest distance": off, "with a lost turn": moved},
        criterion="distance < 1e-12, > 0.1 with a lost turn",
        holds=off < 1e-12 and moved > 0.1,
    )


@mutation("An answer that was cut off counts as well formed.", kills=form_comes_first)
def cut_off_is_fine(replace: Replace) -> None:
    replace(WellFormed, "forward", lambda self, batch: batch.extras["signal_malformed"] == 0)


@mutation("Only wrong answers are punished for their form.", kills=form_comes_first)
def right_is_right(replace: Replace) -> None:
    own = WellFormed.forward
    replace(WellFormed, "forward", lambda self, batch: own(self, batch) | (batch.outcome == 1))
