"""Copies of cache rows, likeness of sequences, and rollouts that branch."""

from __future__ import annotations

import difflib
import itertools
import math
from typing import Any

import pytest
import torch
from tiny_models import STOP, full_logits, slow_choices, tiny

import polopt as po
from polopt.lab import TabularPolicy, TokenTree
from polopt.lab.steps import TreeSteps
from polopt.policies.decoder import Decoder
from polopt.policies.lookahead import explore
from polopt.policies.rollout_record import Sampled
from polopt.policies.sampler import sample
from polopt.policies.sampler_steps import DecoderSteps, ModelSteps
from polopt.sampling import Lookahead
from polopt.sampling.diversity import edit_distance
from polopt.sampling.similar import common_subsequence, edit_ratio, rouge_l, suffix_match
from polopt.support import Support

RAGGED = [[3, 4, 5, 6, 7, 8, 9], [9, 4], [5], [7, 7, 3, 4]]
# Branches wherever it may, lets nothing go, and branches to the end.
WIDE = Lookahead(edit=None, least=0.0, apart=1.0, windows=(99,))


def steps_of(kind: str, decode: bool) -> Any:
    model = tiny(kind)
    found = Decoder.of(model) if decode else None
    return model, DecoderSteps(found) if found is not None else ModelSteps(model)


def grow(kind: str = "gpt2", decode: bool = True, contexts: Any = RAGGED, **changes: Any) -> list[Sampled]:
    _, steps = steps_of(kind, decode)
    settings: dict[str, Any] = {"group": 6, "branches": 4, "rule": WIDE, "support": Support(), "limit": 12} | changes
    generator = torch.Generator().manual_seed(settings.pop("seed", 0))
    stops = torch.tensor(settings.pop("stop", [STOP]))
    settings["copies"] = [settings.pop("group")] * len(contexts)
    settings["branches"] = [settings["branches"]] * len(contexts)
    with torch.inference_mode():
        return explore(steps, contexts, ends=lambda t: torch.isin(t, stops), generator=generator, **settings)


# Copies of rows ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "decode"), [("gpt2", True), ("llama", True), ("gpt2", False), ("mistral", False)])
@torch.no_grad()
def test_a_copied_row_goes_on_like_its_model_and_apart_from_it(kind: str, decode: bool) -> None:
    """Whatever is copied, let go, and copied again, logits are those of a full forward pass of each row's tokens."""
    model, steps = steps_of(kind, decode)
    g = torch.Generator().manual_seed(0)
    rows = [list(c) for c in RAGGED for _ in range(2)]
    logits = steps.begin(RAGGED, [2] * len(RAGGED), 12)
    for step in range(6):
        for row, said in zip(rows, logits, strict=True):
            torch.testing.assert_close(said, full_logits(model, row)[-1], rtol=0, atol=1e-9)
        copied = torch.randint(len(rows), (step % 3,), generator=g)
        steps.fork(copied)
        rows += [list(rows[i]) for i in copied.tolist()]
        left = [i for i in range(len(rows)) if i % 5 != step % 5]
        steps.keep(torch.tensor(left))
        rows = [rows[i] for i in left]
        token = torch.randint(3, 10, (len(rows),), generator=g)
        logits = steps.step(token)
        for row, t in zip(rows, token.tolist(), strict=True):
            row.append(t)
    assert len({tuple(row) for row in rows}) == len(rows)


# Likeness ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_likeness_against_plain_definitions(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    a, b = (torch.randint(0, 3, (int(n),), generator=g).tolist() for n in torch.randint(1, 7, (2,), generator=g))
    assert edit_distance(a, b) == _distance(tuple(a), tuple(b))
    subsequences = [c for n in range(len(a) + 1) for c in itertools.combinations(a, n)]
    held = max(len(c) for c in subsequences if _holds(b, c))
    assert common_subsequence(a, b) == held
    assert rouge_l(a, b) == pytest.approx(2 * held / (len(a) + len(b)))
    ends = [x[len(x) - n :] for x in (a, b) for n in range(len(x) + 1)]
    inside = [len(e) for e in ends[: len(a) + 1] if _stands(b, e)] + [
        len(e) for e in ends[len(a) + 1 :] if _stands(a, e)
    ]
    assert suffix_match(a, b) == max(inside) / max(len(a), len(b))
    assert suffix_match(a, b) == suffix_match(b, a)
    assert difflib.SequenceMatcher(None, a, b).find_longest_match().size >= max(inside)


def _distance(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    if not a or not b:
        return len(a) + len(b)
    changed = _distance(a[1:], b[1:]) + (a[0] != b[0])
    return min(changed, _distance(a[1:], b) + 1, _distance(a, b[1:]) + 1)


def _holds(b: list[int], c: tuple[int, ...]) -> bool:
    left = iter(b)
    return all(x in left for x in c)


def _stands(b: list[int], e: list[int]) -> bool:
    return any(b[i : i + len(e)] == e for i in range(len(b) - len(e) + 1))


def test_likeness_of_the_same_and_of_strangers() -> None:
    assert (edit_ratio([1, 2], [1, 2]), suffix_match([1, 2], [1, 2]), rouge_l([1, 2], [1, 2])) == (0, 1, 1)
    assert (edit_ratio([1, 2], [3, 4]), suffix_match([1, 2], [3, 4]), rouge_l([1, 2], [3, 4])) == (1, 0, 0)


# Branching ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decode", [True, False])
@pytest.mark.parametrize("support", [Support(), Support(temperature=0.7)], ids=str)
def test_without_branches_it_is_the_sampler(support: Support, decode: bool) -> None:
    model, _ = steps_of("gpt2", decode)
    plain = sample(
        model, RAGGED, group=6, support=support, limit=12, stop=frozenset({STOP}),
        generator=torch.Generator().manual_seed(3), decoder=Decoder.of(model) if decode else None,
    )  # fmt: skip
    found = grow(decode=decode, branches=0, support=support, seed=3)
    assert [(a.tokens, a.stopped) for a in found] == [(a.tokens, a.stopped) for a in plain]
    for a, b in zip(found, plain, strict=True):
        assert a.logp == pytest.approx(b.logp, abs=1e-12)
        assert a.entropy == pytest.approx(b.entropy, abs=1e-12)


def test_one_rank_is_greedy() -> None:
    model, _ = steps_of("gpt2", True)
    found = grow(group=1, branches=1, rule=WIDE.but(top=1))
    for context, answer in zip(RAGGED, found, strict=True):
        ids = torch.tensor([context])
        greedy = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False, eos_token_id=STOP
        )
        assert answer.tokens == greedy[0, len(context) :].tolist()


@pytest.mark.parametrize("support", [Support(), Support(temperature=1.7)], ids=str)
@pytest.mark.parametrize(("kind", "decode"), [("llama", True), ("mistral", False)])
@torch.no_grad()
def test_log_probabilities_are_the_policys_own(kind: str, decode: bool, support: Support) -> None:
    model, _ = steps_of(kind, decode)
    rule = Lookahead(least=0.05, apart=0.5, windows=(2, 4), edit=0.6, until=6)
    found = grow(kind, decode, rule=rule, support=support)
    assert len(found) == 6 * len(RAGGED)
    assert len({(len(a.tokens), a.stopped) for a in found}) > 2
    for i, answer in enumerate(found):
        row = RAGGED[i // 6] + answer.tokens
        assert answer.stopped == (answer.tokens[-1] == STOP)
        assert len(answer.tokens) <= 12
        assert STOP not in answer.tokens[:-1]
        logits = full_logits(model, row)[len(row) - len(answer.tokens) - 1 :].tolist()
        for t, token in enumerate(answer.tokens):
            choices = slow_choices(logits[t], support)
            assert answer.logp[t] == pytest.approx(math.log(choices[token]), abs=1e-9)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_both_forward_passes_grow_the_same_tree(kind: str) -> None:
    rule = Lookahead(least=0.05, apart=0.5, windows=(2, 4), edit=0.6, until=6)
    fast, slow = (grow(kind, decode, rule=rule) for decode in (True, False))
    assert [a.tokens for a in fast] == [a.tokens for a in slow]


def tree_of(*levels: list[float], paraphrase: tuple[int, ...] = ()) -> tuple[TokenTree, TabularPolicy]:
    """Tokens drawn independently at each level with these odds."""
    width = max(map(len, levels))
    answers = list(itertools.product(*(range(len(level)) for level in levels)))
    tree = TokenTree(width, answers, lambda prompt, answer: 0.0)
    policy = TabularPolicy(tree)
    mask, nodes = tree.leaves().mask, tree.nodes
    with torch.no_grad():
        for depth, level in enumerate(levels):
            at = nodes[:, tree.start + depth][mask[:, tree.start + depth]].unique()
            policy.logits[at, : len(level)] = torch.tensor(level).double().log()
    return tree, policy


def on_tree(tree: TokenTree, policy: TabularPolicy, **changes: Any) -> list[Sampled]:
    steps = TreeSteps(tree, policy)
    settings: dict[str, Any] = {"group": 8, "branches": 8, "rule": WIDE, "support": Support()}
    settings |= {"limit": tree.horizon, "ends": steps.ended, "generator": torch.Generator().manual_seed(0)} | changes
    settings |= {"copies": [settings.pop("group")], "branches": [settings["branches"]]}
    return explore(steps, [[0] * tree.start], **settings)


def test_open_thresholds_expand_breadth_first() -> None:
    tree, policy = tree_of([0.6, 0.3, 0.1], [0.5, 0.4, 0.1], [0.7, 0.2, 0.1])
    found = {tuple(a.tokens) for a in on_tree(tree, policy)}
    assert found == set(itertools.product((0, 1), repeat=3))


def test_thresholds_and_room() -> None:
    tree, policy = tree_of([0.6, 0.3, 0.1], [0.45, 0.35, 0.2])
    tokens = lambda **rule: sorted(tuple(a.tokens) for a in on_tree(tree, policy, rule=WIDE.but(**rule), **room))  # noqa: E731
    room: dict[str, Any] = {"group": 4, "branches": 4}
    assert set(tokens(apart=0.2)) == {(0, 0), (0, 1)}  # 0.6 - 0.3 is too far apart
    assert set(tokens(least=0.32)) == {(0, 0), (0, 1)}
    assert set(tokens(least=0.4)) == {(0, 0)}
    assert set(tokens(top=3, apart=0.2)) == {(0, 0), (0, 1)}
    room = {"group": 3, "branches": 3}
    assert tokens() == [(0, 0), (0, 1), (1, 0)]  # the older branch first
    assert tokens(top=3) == [(0, 0), (1, 0), (2, 0)]


def test_every_context_has_its_own_numbers() -> None:
    both = grow(contexts=RAGGED[:2], rule=WIDE, group=6, branches=4, seed=1)
    _, steps = steps_of("gpt2", True)
    settings: dict[str, Any] = {"rule": WIDE, "support": Support(), "limit": 12}
    generator = torch.Generator().manual_seed(1)
    ends = lambda t: t == STOP  # noqa: E731
    with torch.inference_mode():
        some = explore(steps, RAGGED[:2], copies=[6, 3], branches=[4, 0], ends=ends, generator=generator, **settings)
    assert len(some) == 9
    assert [a.tokens for a in some[:4]] == [a.tokens for a in both[:4]]
    assert {len(set(map(tuple, (a.tokens for a in some[:4]))))} == {4}


def test_rows_beside_the_tree_are_drawn_as_ever() -> None:
    tree, policy = tree_of([0.6, 0.4], [0.5, 0.5], [0.7, 0.3])
    plain = on_tree(tree, policy, branches=0)
    mixed = on_tree(tree, policy, branches=3)
    assert [a.tokens for a in mixed[3:]] == [a.tokens for a in plain[3:]]


def test_paraphrases_go_and_their_room_is_used_again() -> None:
    """The first token does not matter for what follows; the one behind it does."""
    tree, policy = tree_of([0.5, 0.45, 0.05], [1.0], [1.0], [0.5, 0.45, 0.05], [1.0], [1.0])
    rule = Lookahead(least=0.1, apart=0.3, windows=(3,), edit=0.4, until=6)
    found = {tuple(a.tokens) for a in on_tree(tree, policy, rule=rule, group=2, branches=2)}
    # Pruned at 3 tokens, so that the branching at the fourth finds room; that one has 1 of 3 tokens in another way too.
    assert {t[0] for t in found} == {0}
    assert {t[3] for t in found} == {0, 1}
    kept = {tuple(a.tokens) for a in on_tree(tree, policy, rule=rule.but(edit=0.3), group=2, branches=2)}
    assert {t[0] for t in kept} == {0, 1}
    for other in ({"suffix": 0.5}, {"rouge": 0.6}):
        again = {tuple(a.tokens) for a in on_tree(tree, policy, rule=rule.but(edit=None, **other), group=2, branches=2)}
        assert {t[0] for t in again} == {0}


def test_what_grew_from_a_branch_that_goes_goes_too() -> None:
    tree, policy = tree_of([0.5, 0.45, 0.05], [0.5, 0.45, 0.05], [1.0], [1.0], [1.0], [1.0])
    rule = Lookahead(least=0.1, apart=0.3, windows=(4,), edit=0.3)
    found = {tuple(a.tokens)[:2] for a in on_tree(tree, policy, rule=rule)}
    assert found == {(0, 0)}


def test_a_tree_that_ends_early_is_filled_and_drawn() -> None:
    tree, policy = tree_of(*[[0.5, 0.5]] * 8)
    drawn = on_tree(tree, policy, rule=WIDE.but(until=1), group=16, branches=16)
    assert len(drawn) == 16
    firsts = [a.tokens[0] for a in drawn]
    assert firsts.count(0) == 8
    assert firsts.count(1) == 8  # copies in turn
    assert len({tuple(a.tokens) for a in drawn}) > 10
    # Independent draws: no two tails are the same stream.
    assert len({tuple(a.tokens[1:]) for a in drawn}) > 10


def test_sampling_between_branchings() -> None:
    tree, policy = tree_of(*[[0.5, 0.3, 0.2]] * 6)
    argmax, full, always = (
        on_tree(tree, policy, rule=WIDE.but(least=0.9, others=others), group=1, branches=1)[0].tokens
        for others in ("argmax", "full", "always")
    )
    assert argmax == [0] * 6
    assert full == always != argmax
    rule = WIDE.but(least=0.9, decay=0.0)
    alone = on_tree(tree, policy, rule=rule.but(others="full"), group=2, branches=2)
    assert [a.tokens for a in alone] == [[0] * 6] * 2


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="top >= 1 and windows >= 1, found 0"):
        Lookahead(top=0)
    with pytest.raises(ValueError, match="until must be >= 0"):
        Lookahead(until=-1)
    with pytest.raises(ValueError, match=r"decay must be in \[0, 1\], found 2"):
        Lookahead(decay=2)
    again = po.from_yaml(Lookahead(windows=(3, 5)).to_yaml())
    assert list(again.windows) == [3, 5]
