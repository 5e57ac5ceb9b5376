"""InfoCons: what phrasings have in common, against plain computations and brute force."""

from __future__ import annotations

import collections
import math
from typing import Any

import pytest
import torch

import polopt as po
from polopt.claims.problems.phrasings import dependence, divergence, recommender
from polopt.credit import RelativeAdvantage
from polopt.experience import Experience
from polopt.features.groupings import SameKind, SamePrompt, WholeBatch
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.methods.infocons import ParaphraseConsistency, ReturnsPlusMeasures, TermEntropy, share_distance
from polopt.worlds import Task


def said(*answers: tuple[int, str, list[int]]) -> Experience:
    """Rows of (prompt, kind, tokens)."""
    T = max(len(tokens) for _, _, tokens in answers) + 1
    tokens = torch.full((len(answers), T), 77)
    mask = torch.zeros(len(answers), T, dtype=torch.bool)
    for row, (_, _, mine) in enumerate(answers):
        tokens[row, 1 : 1 + len(mine)] = torch.tensor(mine, dtype=torch.long)
        mask[row, 1 : 1 + len(mine)] = True
    return Experience(
        mask=mask,
        group=torch.tensor([prompt for prompt, _, _ in answers]),
        reward=torch.zeros(len(answers), dtype=torch.double),
        extras={"tokens": tokens, "kind": [kind for _, kind, _ in answers]},
    )


def law(rows: list[list[int]]) -> dict[int, float]:
    counts = collections.Counter(t for row in rows for t in row)
    total = sum(counts.values())
    return {t: n / total for t, n in counts.items()}


def entropy(p: dict[int, float]) -> float:
    return -sum(v * math.log(v) for v in p.values())


def js(p: dict[int, float], q: dict[int, float]) -> float:
    m = {t: (p.get(t, 0) + q.get(t, 0)) / 2 for t in p.keys() | q.keys()}
    kl = lambda a: sum(v * math.log2(v / m[t]) for t, v in a.items())  # noqa: E731
    return (kl(p) + kl(q)) / 2


ANSWERS = (
    (5, "a", [1, 2, 2, 3]),
    (5, "a", [1, 1]),
    (2, "a", [3, 4]),
    (9, "b", [1]),
    (2, "a", [4, 4, 4]),
    (7, "a", [2]),
    (4, "b", [1, 9]),
)


def test_measures_against_plain_loops() -> None:
    batch = said(*ANSWERS)
    laws = {p: law([t for q, _, t in ANSWERS if q == p]) for p, _, _ in ANSWERS}
    kinds = {p: kind for p, kind, _ in ANSWERS}
    help_, even, alike = [], [], []
    for prompt, kind, tokens in ANSWERS:
        p = laws[prompt]
        help_.append(entropy(p) / math.log(len(p)) if len(p) > 1 else 0.0)
        mine = [laws[q] for q in laws if kinds[q] == kind]
        even.append(-abs(entropy(p) - sum(map(entropy, mine)) / len(mine)))
        others = [laws[q] for q in laws if kinds[q] == kind and q != prompt]
        alike.append(-sum(js(law([tokens]), q) for q in others) / len(others))
    close: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-13}
    expect = lambda values: torch.tensor(values, dtype=torch.double)  # noqa: E731
    torch.testing.assert_close(TermEntropy()(batch), expect(help_), **close)
    torch.testing.assert_close(ParaphraseConsistency(within=SameKind())(batch), expect(even), **close)
    torch.testing.assert_close(ParaphraseConsistency(by="content", within=SameKind())(batch), expect(alike), **close)


def test_one_phrasing_is_steady_and_nothing_said_shares_nothing() -> None:
    alone = said((0, "a", [1, 2]), (1, "b", [3]))
    for by in ("entropy", "content"):
        assert ParaphraseConsistency(by=by, within=SameKind())(alone).tolist() == [0.0, 0.0]
    silent = said((0, "a", []), (1, "a", [3]), (2, "a", []))
    assert ParaphraseConsistency(by="content", within=SameKind())(silent).tolist() == [-0.5, -1.0, -0.5]
    assert TermEntropy()(silent).tolist() == [0.0, 0.0, 0.0]


def test_on_answers_of_one_term_content_is_self_consistency() -> None:
    batch = said((0, "a", [1]), (0, "a", [2]), (1, "a", [1]), (1, "a", [1]), (2, "a", [2]), (2, "a", [3]))
    tokens, group = [1, 2, 1, 1, 2, 3], [0, 0, 1, 1, 2, 2]
    found = ParaphraseConsistency(by="content", within=SameKind())(batch)
    for row, value in enumerate(found.tolist()):
        each = []
        for other in {0, 1, 2} - {group[row]}:
            theirs = law([[t] for t, g in zip(tokens, group, strict=True) if g == other])
            each.append(-js({tokens[row]: 1.0}, theirs))
        assert value == pytest.approx(sum(each) / 2, rel=1e-12)
    whole = said((0, "a", [1]), (1, "a", [1]), (2, "a", [2]), (3, "a", [1]))
    assert ParaphraseConsistency(by="content", within=SameKind())(whole).tolist() == pytest.approx(
        [-1 / 3, -1 / 3, -1.0, -1 / 3]
    )


def test_distance_is_symmetric_and_between_0_and_1() -> None:
    p = torch.rand(50, 2, 6, generator=torch.Generator().manual_seed(0), dtype=torch.double).pow(4)
    p = p / p.sum(-1, keepdim=True)
    there, back = share_distance(p[:, 0], p[:, 1]), share_distance(p[:, 1], p[:, 0])
    torch.testing.assert_close(there, back, rtol=1e-12, atol=1e-15)
    assert ((there > 0) & (there < 1)).all()
    assert share_distance(p[0, 0], p[0, 0]).item() == pytest.approx(0, abs=1e-12)
    assert share_distance(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])).item() == 1


def test_one_phrasing_of_everything_is_grpo_with_the_reward_of_information() -> None:
    batch = said(*ANSWERS)
    both = ReturnsPlusMeasures(
        measures=[TermEntropy(), ParaphraseConsistency(within=SamePrompt())],
        weights=[1.0, 5.0],
        credit=RelativeAdvantage(),
    )
    alone = RelativeAdvantage()(batch.replace(reward=TermEntropy()(batch)))
    torch.testing.assert_close(both(batch), alone, rtol=1e-10, atol=1e-12)


def test_what_the_lab_measures() -> None:
    tree = TokenTree.bandit(torch.zeros(4, 2).tolist(), kinds=["a", "a", "b", "b"])
    policy = TabularPolicy(tree)
    assert divergence(tree, policy) == pytest.approx(0, abs=1e-12)
    p = torch.tensor([[1.0, 1e-300], [1e-300, 1.0], [1.0, 1e-300], [1.0, 1e-300]], dtype=torch.double)
    policy.set_probabilities(p)
    assert divergence(tree, policy) == pytest.approx(0.5, rel=1e-9)
    h = lambda x: -x * math.log2(x) - (1 - x) * math.log2(1 - x)  # noqa: E731
    assert dependence(tree, policy) == pytest.approx(h(0.75) - 0.5, rel=1e-9)
    tree, policy = recommender(needs=2, phrases=3, items=4)
    assert tree.kinds == ["need 0"] * 3 + ["need 1"] * 3
    assert policy.logits.shape == (6, 4)


def test_all_rows_are_one_meaning_unless_said_otherwise() -> None:
    batch = said(*ANSWERS)
    torch.testing.assert_close(
        ParaphraseConsistency()(batch), ParaphraseConsistency(within=WholeBatch())(batch), rtol=0, atol=0
    )
    assert not torch.equal(ParaphraseConsistency()(batch), ParaphraseConsistency(within=SameKind())(batch))
    assert isinstance(po.from_yaml(ParaphraseConsistency(by="content").to_yaml()), ParaphraseConsistency)


def test_every_task_is_asked_in_every_phrasing() -> None:
    tree, policy = recommender(needs=3, phrases=2, items=4)
    other = torch.tensor([1, 0, 3, 2, 5, 4])
    source = TreeSource(tree, policy, rows=16, variants={" again": other})
    algorithm = po.method("infocons", group=4, phrasings=("", " again"), kl=0.0)
    batch = algorithm.sampling(source)
    assert batch.group.tolist() == [g for g in range(4) for _ in range(4)]
    task = batch.extras["index"]
    leaf = batch.extras["leaf"] // 4
    second = batch.group % 2 == 1
    assert torch.equal(torch.where(second, leaf, other[leaf]), other[task])
    assert torch.equal(task[:4], task[4:8])
    # Both phrasings of a task are compared, and nothing else.
    judged = algorithm.compute_advantages(batch)
    for number in task.unique():
        assert judged.advantage[task == number].sum().item() == pytest.approx(0, abs=1e-9)
    with pytest.raises(ValueError, match="endings that differ"):
        po.methods.infocons.Paraphrases(endings=["", ""])


def test_it_is_grpo_but_for_guide_and_credit() -> None:
    changed = {path for path, *_ in po.diff(po.method("grpo", group=4), po.method("infocons"))}
    assert changed == {"sampling.guide", "credit"}
    content = {path for path, *_ in po.diff(po.method("infocons"), po.method("infocons", by="content"))}
    assert content == {"credit.measures.1.by"}


def test_tasks_of_one_meaning_are_brought_together() -> None:
    tree, policy = recommender(needs=3, phrases=2, items=4)
    source = TreeSource(tree, policy, rows=8)
    chosen = po.sampling.ConsecutiveTasks(each=2)(source, 4)
    assert chosen.view(2, 2).diff(dim=1).tolist() == [[1], [1]]
    assert (chosen[::2] % 2 == 0).all()
    # A last run that is too short is left out.
    assert set(po.sampling.ConsecutiveTasks(each=4)(source, 40).tolist()) == {0, 1, 2, 3}
    for each, message in ((0, "each must be >= 1"), (7, "runs of 7 tasks need at least as many, found 6")):
        with pytest.raises(ValueError, match=message):
            po.sampling.ConsecutiveTasks(each=each)(source, 4)
    batch = said(*ANSWERS)
    meanings = ["x", "x", "y", None, "y", None, "x"]
    tasks = [Task(str(i), "k", "", None, {} if m is None else {"meaning": m}) for i, m in enumerate(meanings)]
    index = torch.tensor([4, 4, 5, 6, 5, 6, 8])
    found = po.features.SameMeaning()(batch.replace(extras={"task": tasks, "index": index})).tolist()
    assert found == [0, 0, 1, 2, 1, 2, 0]
