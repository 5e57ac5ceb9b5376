"""Judges with weights of their own: what they read, how they learn, and where their weights are not."""

from __future__ import annotations

import math
import re
import warnings

import pytest
import torch
from torch.nn import functional as F

import polopt as po
from polopt.backends import (
    Pairs,
    TextScorer,
    choose_same,
    fit_scorer,
    likes,
    load_scorer,
    prefers,
    same_policy_pairs,
    save_scorer,
)
from polopt.backends.scorer import PAD, SEPARATOR, ScorerShape
from polopt.fields import ExperienceError
from polopt.rewards import JudgedReward, LearnedJudge, OutcomeReward, SumOfRewards
from polopt.worlds import Task


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class TestScorer:
    def test_it_reads_bytes_and_cuts_prompts_at_the_front(self):
        ids = TextScorer(ScorerShape(width=8, length=3)).read(["abcd", ""], ["é", "wxyz"])
        assert ids.tolist() == [[*b"bcd", SEPARATOR, *"é".encode()], [SEPARATOR, *b"wxy", PAD, PAD]]

    @pytest.mark.parametrize("layers", [0, 2])
    def test_no_score_depends_on_who_stands_beside(self, layers):
        scorer = TextScorer(ScorerShape(width=8, layers=layers)).double()
        prompts, answers = ["a", "bb", ""], ["some words", "", "a much longer text, which pads the others" * 3]
        together = scorer(prompts, answers)
        alone = torch.cat([scorer([p], [a]) for p, a in zip(prompts, answers, strict=True)])
        torch.testing.assert_close(together, alone, rtol=1e-10, atol=1e-12)
        assert len(set(together.tolist())) == 3

    def test_without_attention_it_is_a_mean_over_windows(self):
        """A loop in plain Python, of one text."""
        scorer = TextScorer(ScorerShape(width=8, layers=0, window=2)).double()
        ids = [*b"p", SEPARATOR, *b"xyz"]
        vectors = [torch.zeros(8).double(), *(scorer.bytes.weight[i] for i in ids)]
        said = sum(
            (
                scorer.windows.weight @ torch.stack([vectors[t], vectors[t + 1]], 1).flatten() + scorer.windows.bias
            ).relu()
            for t in range(len(ids))
        ) / len(ids)
        wanted = scorer.head(F.layer_norm(said, (8,)))
        torch.testing.assert_close(scorer(["p"], ["xyz"]), wanted, rtol=1e-10, atol=1e-12)

    def test_the_comparison_reads_the_reference(self):
        scorer = TextScorer(ScorerShape(width=8, compares=True))
        assert scorer(["p"], ["a"], ["b"]) != scorer(["p"], ["a"], ["c"])
        with pytest.raises(ValueError, match="compares with references, found none"):
            scorer(["p"], ["a"])

    def test_a_folder_gives_it_back(self, tmp_path):
        scorer = TextScorer(ScorerShape(width=8, layers=2, compares=True), seed=5)
        again = load_scorer(save_scorer(scorer, tmp_path / "judge"))
        assert again.shape == scorer.shape
        assert torch.equal(again(["p"], ["a"], ["b"]), scorer(["p"], ["a"], ["b"]))
        with pytest.raises(ValueError, match="holds no scorer that can be read"):
            load_scorer(tmp_path)
        (tmp_path / "judge" / "scorer.json").write_text('{"width": 12}')
        with pytest.raises(ValueError, match="holds no scorer that can be read"):
            load_scorer(tmp_path / "judge")

    def test_its_weights_come_from_its_seed_alone(self):
        state = torch.get_rng_state()
        first, second, other = TextScorer(seed=1), TextScorer(seed=1), TextScorer(seed=2)
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.equal(first(["a"], ["b"]), second(["a"], ["b"]))
        assert not torch.equal(first(["a"], ["b"]), other(["a"], ["b"]))

    @pytest.mark.parametrize("bad", [{"width": 6}, {"layers": -1}, {"window": 0}, {"length": 0}])
    def test_bad_shapes(self, bad):
        with pytest.raises(ValueError, match="TextScorer: width must be a multiple of 4"):
            ScorerShape(**bad)


class TestLearning:
    def test_the_losses_are_those_of_the_textbook(self):
        a, b = torch.tensor([0.3, -2.0]).double(), torch.tensor([1.0, 0.5]).double()
        wanted = -sum(math.log(1 / (1 + math.exp(y - x))) for x, y in zip(a, b, strict=True)) / 2
        assert prefers(a, b).item() == pytest.approx(wanted, rel=1e-12)
        liked = torch.tensor([1.0, 0.0]).double()
        p = a.sigmoid()
        assert likes(a, liked).item() == pytest.approx(-(p[0].log() + (1 - p[1]).log()).item() / 2, rel=1e-12)

    def test_pairs_are_of_one_policy_against_another_and_never_a_text_with_itself(self):
        drawn = choose_same(policies=3, count=2000, samples=2, generator=generator())
        who, first, second, other = drawn.T
        assert (first != second).all()
        assert (who != other).all()
        assert torch.bincount(who * 3 + other, minlength=9).view(3, 3).fill_diagonal_(300).min() > 250
        with pytest.raises(ValueError, match="2 policies and 2 samples"):
            choose_same(1, 5, 2, generator())

    def test_texts_come_from_where_their_numbers_say(self):
        written = [[[f"{who}/{p}/{i}" for i in range(3)] for p in "xy"] for who in "ABC"]
        pairs = same_policy_pairs(["x", "y"], written, 200, generator())
        assert len(pairs) == 200
        for prompt, reference, better, worse in zip(
            pairs.prompts, pairs.references, pairs.better, pairs.worse, strict=True
        ):
            (a, p, i), (b, q, j), (c, r, _) = (text.split("/") for text in (reference, better, worse))
            assert p == q == r == prompt
            assert a == b != c
            assert i != j

    def test_it_learns_preferences_reactions_and_who_wrote_what(self):
        """Three tasks that windows of bytes can solve; held-out texts."""
        g = generator()

        def words(letters: str, count: int) -> list[str]:
            drawn = torch.randint(len(letters), (count, 6), generator=g).tolist()
            return ["".join(letters[i] for i in row) for row in drawn]

        good, bad = words("abcx", 300), words("abcy", 300)
        scorer = TextScorer(ScorerShape(width=16, layers=0))
        fit_scorer(scorer, Pairs([""] * 200, good[:200], bad[:200]), steps=60, rows=32)
        assert (scorer([""] * 100, good[200:]) > scorer([""] * 100, bad[200:])).double().mean() > 0.8
        liked = torch.tensor([float("x" in text) for text in good])
        scorer = TextScorer(ScorerShape(width=16, layers=0))
        losses = fit_scorer(scorer, ([""] * 200, good[:200], liked[:200]), steps=100, rows=32)
        assert sum(losses[-10:]) < 0.5 * sum(losses[:10])
        right = (scorer([""] * 100, good[200:]) > 0) == liked[200:].bool()
        assert right.double().mean() > 0.9

    def test_fitting_is_a_function_of_the_seed(self):
        pairs = Pairs(["p"] * 8, list("abcdefgh"), list("ABCDEFGH"))
        shape = ScorerShape(width=8, layers=1)
        runs = [fit_scorer(TextScorer(shape), pairs, steps=3, rows=4, seed=s) for s in (0, 0, 1)]
        assert runs[0] == runs[1] != runs[2]

    def test_pairs_of_different_lengths_are_refused(self):
        with pytest.raises(ValueError, match="must be of one length"):
            Pairs(["a"], ["b"], [])


def batch(**extras: object) -> po.Experience:
    tasks = [Task(f"t/{i}", "k", f"ask {i}", solution, {}) for i, solution in enumerate(["one", "two"])]
    given = {"task": tasks, "answer": ["uno", "due"], **extras}
    return po.Experience(mask=torch.ones(2, 3, dtype=torch.bool), outcome=torch.tensor([1.0, 0.0]), extras=given)


class TestJudged:
    def test_it_is_what_the_judge_says_of_prompts_answers_and_solutions(self):
        judge = LearnedJudge(compares=True)
        wanted = judge.scorer(["ask 0", "ask 1"], ["uno", "due"], ["one", "two"])
        torch.testing.assert_close(JudgedReward(judge=judge)(batch()), wanted.float(), rtol=0, atol=0)
        alone = LearnedJudge(rows=1)
        wanted = torch.cat([alone.scorer([f"ask {i}"], [a]) for i, a in enumerate(["uno", "due"])])
        torch.testing.assert_close(JudgedReward(judge=alone)(batch()), wanted.float(), rtol=0, atol=0)

    def test_a_chance_is_between_0_and_1(self):
        raw, chance = (LearnedJudge(link=link)(["a"], ["b"]).scores for link in ("none", "sigmoid"))
        torch.testing.assert_close(chance, raw.sigmoid())

    def test_a_reward_of_weight_0_changes_nothing(self):
        with_judge = SumOfRewards(terms=[OutcomeReward(), JudgedReward(judge=LearnedJudge())], weights=[1.0, 0.0])
        assert torch.equal(with_judge(batch()), batch().outcome)

    def test_a_task_without_solution_is_refused(self):
        shown = batch(task=[Task("t/9", "k", "ask", None, {})] * 2)
        with pytest.raises(ExperienceError, match=re.escape("task 't/9' has none; give the tasks solutions")):
            JudgedReward(judge=LearnedJudge(compares=True))(shown)
        assert JudgedReward(judge=LearnedJudge())(shown).shape == (2,)

    def test_it_asks_the_tasks_for_solutions_only_to_compare(self):
        assert JudgedReward(judge=LearnedJudge(compares=True)).source_capabilities == {"demonstrations"}
        assert JudgedReward(judge=LearnedJudge()).source_capabilities == frozenset()

    def test_weights_are_of_no_checkpoint_and_learn_nothing(self, tmp_path):
        folder = save_scorer(TextScorer(ScorerShape(width=8), seed=7), tmp_path / "judge")
        part = JudgedReward(judge=LearnedJudge(weights=str(folder)))
        assert part.state_dict() == {}
        assert list(part.parameters()) == []
        again = po.from_yaml(part.to_yaml())
        assert torch.equal(again(batch()), part(batch()))
        assert not part(batch()).requires_grad
        part.bfloat16()
        assert torch.equal(again(batch()), part(batch()))

    def test_a_scorer_that_learned_nothing_says_so(self):
        with pytest.warns(UserWarning, match="has no weights, so its scores mean nothing"):
            LearnedJudge()(["a"], ["b"])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            LearnedJudge().judges_with(TextScorer())(["a"], ["b"])

    def test_the_folder_must_hold_what_is_expected(self, tmp_path):
        folder = save_scorer(TextScorer(ScorerShape(width=8)), tmp_path / "judge")
        with pytest.raises(ValueError, match="was made with compares=False, found compares=True"):
            LearnedJudge(weights=str(folder), compares=True)
        with pytest.raises(ValueError, match="holds no scorer that can be read"):
            LearnedJudge(weights=str(tmp_path))
