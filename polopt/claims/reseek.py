"""These programs measure what the paper of ReSeek claims."""

import itertools

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.lab import TokenTree, train
from polopt.lab.effects import Less, More, effect
from polopt.lab.policy import LinearPolicy
from polopt.lab.shapes import coin
from polopt.methods.grpo import grpo
from polopt.methods.reseek import reseek
from polopt.rewards import FieldReward
from polopt.worlds import Retrieval

PROMPTS, ROUNDS, USEFUL, RIGHT, GUESSED = 16, 4, 0.3, 0.9, 0.1


def searches(seed: int) -> tuple[TokenTree, LinearPolicy, dict[str, Tensor]]:
    """Returns up to four searches, each with a useful result with chance 0.3, which the policy reads as one of two
    signs; judged yes it is answered, right with chance 0.9 if it was useful, else 0.1, and judged no there is another
    search. Prompts have signs of their own, and share twelve features. Results are decisions whose logits cannot
    change. Also returns the judgements of each answer, [prompts, answers], and its searches.
    """
    draw = torch.Generator().manual_seed(seed)
    sign = torch.randint(2, (PROMPTS,), generator=draw)
    answers: list[tuple[int, ...]] = []
    for rounds in range(1, ROUNDS + 1):
        for results in itertools.product(range(2), repeat=rounds):
            before = tuple(itertools.chain.from_iterable((result, 0) for result in results[:-1]))
            answers += [(*before, results[-1], yes) for yes in (1, *(() if rounds < ROUNDS else (0,)))]
    useful = torch.full((PROMPTS, len(answers), ROUNDS), -1.0)
    judged = torch.full((len(answers), ROUNDS), -1.0)
    for i, answer in enumerate(answers):
        useful[:, i, : len(answer) // 2] = (torch.tensor(answer[::2]) == sign[:, None]).float()
        judged[i, : len(answer) // 2] = torch.tensor(answer[1::2]).float()
    count = (judged >= 0).sum(1)
    last = useful.gather(2, (count - 1).expand(PROMPTS, -1)[..., None])[..., 0]
    ends = torch.tensor([answer[-1] for answer in answers])
    outcome = ends * torch.where(last == 1, RIGHT, GUESSED)
    tree = TokenTree(2, answers, outcome.double(), PROMPTS)
    signals = {
        "judged_right": ((judged == useful) & (judged >= 0)).sum(2),
        "judged_yes": ((judged == 1) & (useful == 0)).sum(2),
        "judged_no": ((judged == 0) & (useful == 1)).sum(2),
        "searches": count.expand(PROMPTS, -1),
    }
    return tree, _policy(tree, sign, draw), {name: value.double() for name, value in signals.items()}


def _policy(tree: TokenTree, sign: Tensor, draw: torch.Generator) -> LinearPolicy:
    leaves = tree.leaves()
    own = torch.randn(PROMPTS, 2, 12, generator=draw, dtype=torch.double) / 12**0.5
    features = torch.zeros(len(tree.choices), 12, dtype=torch.double)
    start = torch.zeros(len(tree.choices), 2, dtype=torch.double)
    result = leaves.mask & ((leaves.mask.cumsum(1) - 1) % 2 == 0)
    group = leaves.group[:, None].expand(leaves.mask.shape)
    start[tree.nodes[result], sign[group[result]]] = torch.logit(torch.tensor(USEFUL).double())
    read = torch.roll(leaves.extras["tokens"], 1, 1)
    judge = leaves.mask & ~result
    features[tree.nodes[judge]] = own[group[judge], read[judge]]
    return LinearPolicy(tree, features, start=start)


@effect(
    "More questions are answered than with the outcome alone, with at most 1.3 times the searches.",
    kind="headline",
    method=reseek,
    controls={"outcome alone": lambda: grpo(group=8, kl=0.0)},
    step_sizes=(30.0, 100.0, 300.0, 1000.0),
    trials=5,
    criteria=[More("success", by=0.05), Less("searches", times=1.3)],
    seeds=10,
    cost="slow",
    refuted=True,
    note="16 prompts that share features, 30 batches of 8 rollouts of each; the outcome also teaches what to judge "
    "here. Each right no is paid and brings another search, so that results which are of no use pay more than one that "
    "is. With answers that are right with chance 0.3 in place of 0.9 it is the same.",
)
def answers_more(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    tree, policy, signals = searches(seed)
    ways = {"rate": step_size, "rows": PROMPTS, "seed": seed, "draw": coin, "signals": signals}
    train(algorithm, tree, policy, steps=30, **ways)  # type: ignore[arg-type]
    probability = tree.log_probabilities(policy).detach().exp()
    return {
        "success": (probability * tree.outcome).sum(1).mean().item(),
        "searches": (probability * signals["searches"]).sum(1).mean().item(),
    }


def _judged(right: float, yes: float, no: float, outcome: float = 0.0) -> Experience:
    column = {"judged_right": right, "judged_yes": yes, "judged_no": no}
    value = torch.tensor([outcome]).double()
    return Experience(
        mask=torch.ones(1, 2, dtype=torch.bool),
        outcome=value,
        reward=value,
        extras={f"signal_{name}": torch.tensor([number]).double() for name, number in column.items()},
    )


@claim(
    "Judging yes pays from a chance of 0.6 that the result is useful on, and from 0.5 with equal penalties.",
    kind="theory",
    baseline="equal penalties",
)
def careful() -> Finding:
    def least(algorithm: Algorithm) -> float:
        """Returns the chance at which both judgements pay the same."""
        paid = [algorithm.reward(_judged(*case)).item() for case in ((1, 0, 0), (0, 1, 0), (0, 0, 1))]
        return (paid[0] - paid[1]) / (2 * paid[0] - paid[1] - paid[2])

    ours, equal = least(reseek()), least(reseek(wrong_yes=-0.3))
    return Finding(
        measured={"least chance": ours, "with equal penalties": equal},
        criterion="0.6 and 0.5 to 1e-12",
        holds=abs(ours - 0.6) < 1e-12 and abs(equal - 0.5) < 1e-12,
    )


@claim(
    "In the world of search, a row is paid for its outcome and for each judgement, by what the result holds.",
    kind="identity",
    baseline="the outcome alone",
)
def pays_judgements() -> Finding:
    tasks = Retrieval(size=4, hops=(2, 2), graphs=2, people=12, judge=True)
    off = moved = 0.0
    for i, labels in itertools.product(range(4), (("no", "yes"), ("yes", "yes"), ("no", "no", "yes"))):
        task = tasks[i]
        episode, expected = tasks.episode(task), 0.0
        episode.reset()
        chain = [*task.row["chain"][:-1], task.row["chain"][-2]]
        step = episode.step(f"<search>{chain[0]}</search>")
        for k, label in enumerate(labels):
            useful = task.row["chain"][-1].lower() in step.observation.lower()
            expected += 0.3 if (label == "yes") == useful else -0.6 if label == "yes" else -0.3
            ends = k == len(labels) - 1
            word = f"<answer>{task.row['chain'][-1]}</answer>" if ends else f"<search>{chain[k + 1]}</search>"
            step = episode.step(f"<judge>{label}</judge>{word}")
        told = step.info["signals"]
        row = _judged(told["judged_right"], told["judged_yes"], told["judged_no"], outcome=step.reward)
        found = reseek().reward(row).item()
        off, moved = max(off, abs(found - 1 - expected)), max(moved, abs(expected))
    return Finding(
        measured={"largest error": off, "largest payment": moved},
        criterion="error < 1e-9 on twelve episodes, a payment > 0.5",
        holds=off < 1e-9 and moved > 0.5,
    )


@mutation("Both wrong judgements cost the same.", kills=careful)
def equal_penalties(replace: Replace) -> None:
    own = FieldReward.forward

    def forward(self: FieldReward, experience: Experience) -> Tensor:
        return own(self, experience) * (0.5 if self.name == "signal_judged_yes" else 1.0)

    replace(FieldReward, "forward", forward)


@mutation("The world takes every result for useful.", kills=pays_judgements)
def always_useful(replace: Replace) -> None:
    from polopt.worlds.retrieval import RetrievalEpisode

    own = RetrievalEpisode._searched

    def searched(self: RetrievalEpisode, query: str) -> str:
        found = own(self, query)
        self.useful = True
        return found

    replace(RetrievalEpisode, "_searched", searched)
