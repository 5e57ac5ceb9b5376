"""Teachers: what they are told, what is learned from them, and where; each against plain Python or scipy."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from batches import taught_batch
from scipy import stats
from torch import Tensor

import polopt as po
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.features import IsCorrect
from polopt.features.masks import HasTeacher
from polopt.lab import HintedPolicy, TabularPolicy, TokenTree, TreeSource, TreeTeacher
from polopt.methods.bupo import LayerRatio
from polopt.methods.rover import ValueRegression
from polopt.methods.srpo_routing import TeacherCertainty
from polopt.objectives import (
    Branch,
    BranchedObjective,
    Distillation,
    ObjectiveSchedule,
    OldPolicyRatio,
    Phase,
    PolicyGradient,
    SampledDistillation,
    SequenceMean,
    Surrogate,
    TokenMean,
    TokenRatio,
)
from polopt.policies.average import Average
from polopt.sampling.parts import RolloutRequest
from polopt.teachers import TEACHER_FIELDS, Feedback, First, SelfTeacher, Sibling


def rows_of(outcome: list[float], group: list[int], **extras: Any) -> Experience:
    extras = {"answer": [f"answer {i}" for i in range(len(outcome))]} | extras
    mask = torch.ones(len(outcome), 1, dtype=torch.bool)
    return Experience(mask=mask, outcome=torch.tensor(outcome), group=torch.tensor(group), extras=extras)


def test_a_sibling_is_another_right_row_of_the_group() -> None:
    batch = rows_of([1.0, 0.0, 1.0, 0.0, 0.5, 1.0, 0.0], [7, 3, 7, 7, 3, 4, 4])
    everyone = Sibling(wording="see {answer}")
    found = ["see answer 2", None, "see answer 0", "see answer 0", None, None, "see answer 5"]
    assert everyone(batch) == found
    assert everyone.but(rows="wrong")(batch) == [None, None, None, "see answer 0", None, None, "see answer 5"]
    assert everyone.but(right=IsCorrect(threshold=0.5))(batch)[:2] == ["see answer 2", "see answer 4"]


def test_feedback_and_the_first_that_knows() -> None:
    batch = rows_of([1.0, 0.0, 0.0, 0.0], [1, 1, 2, 2], feedback=["fine", "late", "{odd}", None])
    said = Feedback(wording="<{feedback}>")
    assert said(batch) == ["<fine>", "<late>", "<{odd}>", None]
    assert First(hints=[Sibling(wording="{answer}"), said])(batch) == ["<fine>", "answer 0", "<{odd}>", None]
    with pytest.raises(po.ExperienceError, match=r"extras\['feedback'\]"):
        said(rows_of([1.0], [1]))


def taught(p: Tensor, q: Tensor, chosen: int = 0) -> tuple[Experience, Evaluation]:
    """One decision a row, at which policy and teacher have the laws p and q [B, V]; the candidates are the first K."""
    B, K = p.shape
    extras = {
        "has_teacher_signal": torch.ones(B, dtype=torch.bool),
        "candidates": torch.arange(K).expand(B, 1, K),
        "teacher_candidate_logp": q.log()[:, None],
        "teacher_logp": q.log()[:, None, chosen],
        "teacher_entropy": -(q * q.log()).sum(-1, keepdim=True),
    }
    batch = Experience(
        mask=torch.ones(B, 1, dtype=torch.bool), advantage=torch.zeros(B, 1, dtype=torch.double), extras=extras
    )
    said = {"candidate_logp": p.log()[:, None]}
    return batch, Evaluation(logp=p.log()[:, None, chosen], extras=said)


def laws(seed: int, B: int = 5, V: int = 8) -> Tensor:
    x = torch.rand(B, V, generator=torch.Generator().manual_seed(seed), dtype=torch.double) ** 3
    return x / x.sum(1, keepdim=True)


@pytest.mark.parametrize("rest", ["bucket", "renormalise"])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_the_divergence_of_what_is_left(alpha: float, rest: Any) -> None:
    p, q = laws(1), laws(2)
    batch, said = taught(p[:, :3], q[:, :3])
    found = Surrogate(ratio=None, trust=Distillation(alpha=alpha, rest=rest))(batch, said).loss
    short = [torch.cat([x[:, :3], x[:, 3:].sum(1, keepdim=True)], 1) if rest == "bucket" else x[:, :3] for x in (p, q)]
    a, b = (x / x.sum(1, keepdim=True) for x in short)
    m = (1 - alpha) * a + alpha * b
    kl = lambda x, y: stats.entropy(x.numpy(), y.numpy(), axis=1)  # noqa: E731
    expected = {0.0: kl(b, a), 1.0: kl(a, b)}.get(alpha, alpha * kl(b, m) + (1 - alpha) * kl(a, m))
    assert found.item() == pytest.approx(expected.mean(), rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.double, torch.float32])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_all_of_the_vocabulary_as_candidates_leaves_an_empty_bucket(alpha: float, dtype: torch.dtype) -> None:
    """Its value and gradient are those of the whole laws, though rounding decides what is left; equal laws are at 0."""
    z = torch.randn(5, 8, generator=torch.Generator().manual_seed(3), dtype=torch.double).to(dtype).requires_grad_()
    q = laws(2).to(dtype)
    for rest in ("bucket", "renormalise"):
        batch, said = taught(z.softmax(-1), q)
        said = Evaluation(logp=said.logp, extras={"candidate_logp": z.log_softmax(-1)[:, None]})
        batch = batch.replace(advantage=batch.advantage.to(dtype))
        loss = Surrogate(ratio=None, trust=Distillation(alpha=alpha, rest=rest))(batch, said).loss  # type: ignore[arg-type]
        (slope,) = torch.autograd.grad(loss, z)
        whole = po.ops.jensen_shannon(z.log_softmax(-1).double(), q.log().double(), alpha).mean()
        (by_hand,) = torch.autograd.grad(whole, z)
        torch.testing.assert_close(slope, by_hand, atol=1e-12 if dtype == torch.double else 1e-6, rtol=0)
        assert loss.item() == pytest.approx(whole.item(), rel=1e-10 if dtype == torch.double else 1e-5)
    batch, said = taught(q, q)
    p = q.clone().requires_grad_()
    same = Surrogate(ratio=None, trust=Distillation(alpha=alpha))(batch, taught(p, q)[1]).loss
    assert abs(same.item()) < 1e-6


def test_sampled_distillation_is_reinforce_with_the_gap_as_advantage() -> None:
    batch, clean = taught_batch(1), taught_batch(1, clean=True)
    gap = clean.experience.extras["teacher_logp"] - clean.leaves["logp"].detach()
    gap = torch.where(batch.mask & batch.experience.extras["has_teacher_signal"][:, None], gap, 0)
    slopes = []
    for trust, experience in [
        (SampledDistillation(), batch.experience),
        (PolicyGradient(), clean.experience.replace(advantage=gap)),
    ]:
        loss = Surrogate(ratio=None, trust=trust)(experience, batch.evaluation()).loss
        slopes.append(torch.autograd.grad(loss, batch.leaves["logp"])[0])
    assert slopes[0].abs().max() > 1e-3
    torch.testing.assert_close(*slopes, rtol=1e-12, atol=1e-15)


def test_sure_decisions_weigh_one_on_average() -> None:
    batch = taught_batch(2).experience
    where = batch.mask & batch.extras["has_teacher_signal"][:, None]
    evaluation = taught_batch(2).evaluation()
    for beta in (0.0, 0.5, 3.0, 1000.0):
        weights = TeacherCertainty(beta=beta)(batch, evaluation)
        assert weights[where].mean().item() == pytest.approx(1, abs=1e-12)
        assert (weights[~where] == 0).all()
        pieces = [TeacherCertainty(beta=beta)(piece, evaluation) for piece in batch.split(2)]
        torch.testing.assert_close(torch.cat(pieces), weights, rtol=0, atol=0)
    entropy, at = batch.extras["teacher_entropy"][where], TeacherCertainty(beta=0.5)(batch, evaluation)[where]
    by_hand = [math.exp(-0.5 * h) for h in entropy.tolist()]
    assert at.tolist() == pytest.approx([w * len(by_hand) / sum(by_hand) for w in by_hand])
    nobody = batch.replace(extras={"has_teacher_signal": torch.zeros(len(batch), dtype=torch.bool)})
    assert (TeacherCertainty()(nobody, evaluation) == 0).all()


def test_the_truth_table_of_routing() -> None:
    """(right, has a teacher) -> distilled only if wrong and taught."""
    outcome, told = [1.0, 1.0, 0.0, 0.0], [False, True, True, False]
    batch = rows_of(outcome, [0, 0, 0, 0], has_teacher_signal=torch.tensor(told))
    assert HasTeacher(below=1.0)(batch).tolist() == [False, False, True, False]
    assert HasTeacher(below=1.0, invert=True)(batch).tolist() == [True, True, False, True]
    assert HasTeacher()(batch).tolist() == told


def parts_of_srpo(beta: float = 1.0) -> tuple[Surrogate, Surrogate]:
    routes = po.method("srpo-routing", beta=beta).objective.routes  # type: ignore[attr-defined]
    return routes[0].objective, routes[1].objective


def test_one_denominator_for_all_routes() -> None:
    """(sum of one objective's terms + sum of the other's) / all decisions that are routed, row by row."""
    batch = taught_batch(4)
    rewarded, distilled = parts_of_srpo()
    for rows, aggregate in [(None, TokenMean()), (HasTeacher(), TokenMean()), (HasTeacher(), SequenceMean())]:
        wrong = HasTeacher(below=0.5)
        left, right = (part.but(aggregate=aggregate) for part in (rewarded, distilled))
        routes = [Branch(objective=left, rows=rows), Branch(objective=right, rows=wrong, weight=0.5)]
        found = BranchedObjective(routes=routes, count="all")(batch.experience, batch.evaluation()).loss
        e = batch.experience
        first = torch.ones(len(e), dtype=torch.bool) if rows is None else rows(e)
        total = 0.0
        for part, chosen, weight in ((left, first, 1.0), (right, wrong(e), 0.5)):
            own = e.replace(mask=e.mask & chosen[:, None])
            mean = part(own, batch.evaluation()).loss
            count = own.mask.any(1).sum() if isinstance(aggregate, SequenceMean) else own.mask.sum()
            total = total + weight * mean * count
        counted = e.mask & (first | wrong(e))[:, None]
        count = counted.any(1).sum() if isinstance(aggregate, SequenceMean) else counted.sum()
        assert count > 0
        assert found.item() == pytest.approx((total / count).item(), rel=1e-12)
        alone = BranchedObjective(routes=routes)(batch.experience, batch.evaluation()).loss
        assert alone.item() != pytest.approx(found.item(), rel=1e-3)


def test_without_wrong_answers_that_can_be_taught_srpo_is_grpo() -> None:
    batch = taught_batch(0)
    srpo = po.method("srpo-routing").objective
    rewarded, _ = parts_of_srpo()
    right = batch.experience.replace(outcome=torch.ones(len(batch.mask), dtype=torch.double))
    nobody = batch.experience.replace(extras={"has_teacher_signal": torch.zeros(len(batch.mask), dtype=torch.bool)})
    for experience in (right, nobody):
        found, plain = (o(experience, batch.evaluation()).loss for o in (srpo, rewarded))
        assert found.isfinite()
        assert found.item() == pytest.approx(plain.item(), rel=1e-12)
    same = po.method("grpo", kl=0).but(**{"objective.aggregate": TokenMean(), "objective.trust": rewarded.trust})
    assert po.diff(same.objective, rewarded) == []


def test_srpo_on_taught_wrong_rows_alone_without_weights_is_sdpo() -> None:
    batch = taught_batch(1)
    everyone = {"has_teacher_signal": torch.ones(len(batch.mask), dtype=torch.bool)}
    batch.experience.extras.update(everyone)
    wrong = batch.experience.replace(outcome=torch.zeros(len(batch.mask), dtype=torch.double))
    sdpo = po.method("sdpo").but(**{"objective.routes.0.objective.weights": []}).objective
    srpo = po.method("srpo-routing", beta=0.0).objective
    losses = [objective(wrong, batch.evaluation()).loss.item() for objective in (sdpo, srpo)]
    assert losses[0] > 1e-3
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)


def test_phases_come_one_after_another_and_only_the_present_one_declares() -> None:
    inner = Surrogate(ratio=LayerRatio(layer=2, final_norm=True))
    phased = ObjectiveSchedule(
        phases=[
            Phase(objective=Surrogate(), batches=0),
            Phase(objective=inner, batches=2),
            Phase(objective=Surrogate(ratio=OldPolicyRatio(), trust=ValueRegression())),
        ]
    )
    algorithm = po.Algorithm(objective=phased)
    expected = [
        ({"extras.old_logp_of_layer_2_normed"}, {"extras.logp_of_layer_2_normed"}),
        ({"extras.old_logp_of_layer_2_normed"}, {"extras.logp_of_layer_2_normed"}),
        ({"extras.old_mean_logp", "old_logp"}, {"extras.mean_logp"}),
        ({"extras.old_mean_logp", "old_logp"}, {"extras.mean_logp"}),
    ]
    common = {"outcome", "reward", "group", "advantage"}
    for needs, evaluates in expected:
        assert algorithm.active_fields("reads") == needs | common
        assert algorithm.objective.active_fields("policy_outputs") == evaluates
        algorithm.step()
    ever = {"extras.old_logp_of_layer_2_normed", "extras.old_mean_logp", "old_logp", "rollout_logp"}
    assert algorithm.required_fields == ever | common
    again = po.Algorithm(objective=phased.but())
    again.load_state_dict(algorithm.state_dict())
    assert again.active_fields("reads") == expected[-1][0] | common


def test_a_phase_of_no_batches_is_never_seen() -> None:
    batch = taught_batch(2)
    phased = ObjectiveSchedule(
        phases=[Phase(objective=Surrogate(ratio=LayerRatio(layer=1)), batches=0), Phase(objective=Surrogate())]
    )
    losses = [o(batch.experience, batch.evaluation()).loss.item() for o in (phased, Surrogate(ratio=TokenRatio()))]
    assert losses[0] == losses[1]


def test_value_regression_decision_by_decision() -> None:
    batch, clean, rho = taught_batch(3), taught_batch(3, clean=True), 0.7
    found = Surrogate(ratio=OldPolicyRatio(), trust=ValueRegression(rho=rho))(batch.experience, batch.evaluation()).loss
    e, leaves = clean.experience, clean.leaves
    total, count = 0.0, 0
    for i, marks in enumerate(e.mask.tolist()):
        at = [t for t, mark in enumerate(marks) if mark]
        for k, t in enumerate(at):
            q = rho * (leaves["logp"][i, t] - e.old_logp[i, t]).item()
            target = e.advantage[i, t].item()
            if k + 1 < len(at):
                u = at[k + 1]
                target += rho * (leaves["extras.mean_logp"][i, u] - e.extras["old_mean_logp"][i, u]).item()
            total, count = total + (q - target) ** 2, count + 1
    assert found.item() == pytest.approx(total / count, rel=1e-12)


def test_values_of_the_uniform_policy_by_recursion() -> None:
    tree = TokenTree.full(3, 3, lambda p, a: float((sum(a) + p) % 3 == 0) + 0.1 * len(a), stop=2, prompts=2)
    stepwise = TokenTree.full(2, 3, lambda p, a: [0.5 * t + i for i, t in enumerate(a)])
    for problem in (tree, stepwise):
        every = [(p, a) for p in range(problem.prompts) for a in problem.answers]
        pays = dict(zip(every, problem.outcome.flatten(), strict=True))

        def worth(prompt: int, prefix: tuple[int, ...], problem: TokenTree = problem, pays: Any = pays) -> float:
            """Expected outcome of the whole answer."""
            if (prompt, prefix) in pays:
                return float(pays[prompt, prefix])
            after = [a for a in problem.answers if a[: len(prefix)] == prefix]
            choices = sorted({a[len(prefix)] for a in after})
            return sum(worth(prompt, (*prefix, c)) for c in choices) / len(choices)

        found, leaves = problem.uniform_values(), problem.leaves()
        for row, (prompt, answer) in enumerate(pays):
            for k in range(len(answer)):
                value = found[problem.nodes[row, problem.start + k], answer[k]].item()
                before = 0.0 if problem.rewards is None else float(leaves.reward[row, : problem.start + k].sum())
                assert value == pytest.approx(worth(prompt, answer[: k + 1]) - before, abs=1e-12)
        assert (found == -torch.inf).equal(~problem.choices)
    other = tree.paying(torch.arange(tree.outcome.numel()).view(tree.outcome.shape))
    assert other.leaves().outcome.tolist() == list(range(tree.outcome.numel()))
    assert tree.leaves().outcome.equal(tree.outcome.flatten())


def two_choices() -> tuple[TokenTree, TabularPolicy]:
    """Three tokens of two; only the second one counts."""
    tree = TokenTree.full(2, 3, lambda prompt, answer: float(answer[1]))
    return tree, TabularPolicy(tree, spread=1.0, seed=4)


@pytest.mark.parametrize("chosen_by", ["teacher", "policy"])
def test_a_teacher_on_a_tree(chosen_by: Any) -> None:
    """What it says of each decision, from the policy's logits by hand; it sees the whole batch and only wrong rows."""
    tree, policy = two_choices()
    spec = SelfTeacher(hint=Sibling(rows="wrong", wording="{answer}"), rate=1.0, top=1, chosen_by=chosen_by)
    source = TreeSource(tree, policy, rows=12, seed=5)
    batch = source.rollout(RolloutRequest(source.take(3), 4, po.Support()))
    for sees in ("all", "decisive"):
        teacher = TreeTeacher(policy, spec, pull=2.0, sees=sees)  # type: ignore[arg-type]
        found = teacher.teach(batch, TEACHER_FIELDS)
        hints = spec(batch)
        assert 0 < sum(h is not None for h in hints) < 12
        assert found.extras["has_teacher_signal"].tolist() == [h is not None for h in hints]
        for row, hint in enumerate(hints):
            for t in range(tree.start, tree.start + 3):
                if hint is None:
                    assert found.extras["candidates"][row, t].tolist() == [-1]
                    continue
                z = policy.logits[tree.nodes[batch.extras["leaf"][row], t]].tolist()
                plain = list(z)
                if sees == "all" or t == tree.start + 1:
                    z[int(hint.split()[t - tree.start])] += 2.0
                law = [math.exp(x) / sum(map(math.exp, z)) for x in z]
                token = int(batch.extras["tokens"][row, t])
                best = max(range(2), key=(z if chosen_by == "teacher" else plain).__getitem__)
                assert found.extras["teacher_logp"][row, t].item() == pytest.approx(math.log(law[token]))
                assert found.extras["teacher_entropy"][row, t].item() == pytest.approx(stats.entropy(law))
                assert found.extras["candidates"][row, t].tolist() == [best]
                assert found.extras["teacher_candidate_logp"][row, t, 0].item() == pytest.approx(math.log(law[best]))
    assert teacher.teach(batch, frozenset({"extras.teacher_logp"})).extras.keys() == {*batch.extras, "teacher_logp"}
    wrong = batch.replace(outcome=torch.zeros(12, dtype=torch.double))
    blank = teacher.teach(wrong, TEACHER_FIELDS)
    assert not blank.extras["has_teacher_signal"].any()
    assert blank.extras["candidates"].eq(-1).all()


def test_a_hint_of_an_impossible_token_stays_impossible() -> None:
    tree = TokenTree(3, [(0, 0), (1, 2)], lambda prompt, answer: float(answer[0]))
    policy = TabularPolicy(tree)
    leaves = tree.leaves()
    leaves = leaves.replace(extras={"hint": torch.tensor([[-1, 1, 2], [-1, 1, 2]])})
    found = HintedPolicy(policy, 3.0, "all").evaluate(leaves, frozenset({"entropy"}))
    assert found.logp[0].tolist() == pytest.approx([0, -math.log1p(math.exp(3)), 0])
    assert found.logp.isfinite().all()


@pytest.mark.parametrize("rate", [0.0, 0.05, 1.0])
def test_the_average_follows(rate: float) -> None:
    _, policy = two_choices()
    average = Average(policy, rate)
    expected = policy.logits.detach().clone()
    for seed in range(3):
        with torch.no_grad():
            policy.logits.copy_(torch.randn(policy.logits.shape, generator=torch.Generator().manual_seed(seed)))
        average.follow()
        expected = (1 - rate) * expected + rate * policy.logits.detach()
        torch.testing.assert_close(average.policy.logits.detach(), expected, rtol=1e-12, atol=1e-14)
    assert (average.policy is policy) == (rate == 1)
    assert bool(average.state()) == (rate < 1)
    other = Average(two_choices()[1], rate)
    other.load({name: value.clone() for name, value in average.state().items()})
    if rate < 1:
        assert torch.equal(other.policy.logits, average.policy.logits)


def test_small_steps_of_narrow_weights_are_not_lost() -> None:
    """In bfloat16 1 + 0.05 / 64 is 1; a hundred such steps to 1 + 1/64 end there nevertheless."""
    layer = torch.nn.Linear(2, 2, bias=False).bfloat16()
    torch.nn.init.ones_(layer.weight)
    average = Average(layer, 0.05)
    with torch.no_grad():
        layer.weight.fill_(1 + 1 / 64)
    for _ in range(200):
        average.follow()
    assert average.policy.weight.dtype == torch.bfloat16
    assert (average.policy.weight == 1 + 1 / 64).all()
    assert average.state()["weight"].dtype == torch.float32
    again = Average(torch.nn.Linear(2, 2, bias=False).bfloat16(), 0.05)
    again.load(average.state())
    assert torch.equal(again.policy.weight, average.policy.weight)
