"""Thoughts that are mixtures of tokens: their probabilities by enumeration, and GRPO's identity at one token."""

from __future__ import annotations

import itertools

import pytest
import torch
from sentences import same

import polopt as po
from polopt.capabilities import Lack
from polopt.claims.problems.mnns import MixtureSource, SignedSums, accuracy, fit, signed_sums
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.policies.mixture import Certain, MixturePolicy, Simplex, Tokens
from polopt.sampling.parts import RolloutRequest
from polopt.support import SupportError
from polopt.training.provided import LANGUAGE

TASK = signed_sums(count=2, most=3)


def policy_of(thoughts, seed: int = 0, task: SignedSums = TASK) -> MixturePolicy:
    return task.policy(thoughts, width=8, layers=2, heads=2, seed=seed, dtype=torch.double)


def source_of(policy: MixturePolicy, rows: int = 32, **settings) -> MixtureSource:
    return MixtureSource(policy, TASK.prompts, TASK.right, TASK.every.double(), rows=rows, **settings)


def batch_of(policy: MixturePolicy, group: int = 4, **settings) -> Experience:
    """Rollouts that are paid at random: what is untrained is never right."""
    source = source_of(policy, **settings)
    batch = source.rollout(RolloutRequest(source.take(8), group, po.Support()))
    paid = torch.rand(len(batch), generator=torch.Generator().manual_seed(0), dtype=torch.double)
    return batch.replace(outcome=paid, reward=paid)


def slope(objective, batch: Experience, policy: MixturePolicy) -> torch.Tensor:
    loss = objective(batch, policy.evaluate(batch, objective.required_outputs)).loss
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(policy.parameters()))])


def discrete_logp(policy: MixturePolicy, tokens: torch.Tensor) -> torch.Tensor:
    """The same transformer on ids alone: embeddings looked up, log-probabilities gathered."""
    x = policy.token[tokens[:, :-1]] + policy.place[: tokens.shape[1] - 1]
    for layer in policy.layers:
        x = layer(x, src_mask=torch.nn.Transformer.generate_square_subsequent_mask(x.shape[1]).double())
    logp = (policy.last(x) @ policy.token.T).log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]
    return torch.nn.functional.pad(logp, (1, 0))


def test_with_one_token_it_is_grpo_on_a_discrete_chain_of_thought() -> None:
    old, policy = policy_of(Tokens(), seed=1), policy_of(Tokens(), seed=2)
    batch = po.method("cot2", group=4).compute_advantages(batch_of(old))
    tokens = batch.extras["tokens"]
    assert (batch.extras["mixture"].amax(-1) == 1).all()
    torch.testing.assert_close(
        batch.rollout_logp[batch.mask], discrete_logp(old, tokens)[batch.mask], rtol=1e-12, atol=1e-12
    )
    # Ordinary GRPO, told of ids and log-probabilities alone.
    plain = Experience(
        mask=batch.mask, rollout_logp=discrete_logp(old, tokens).detach(), reward=batch.reward, group=batch.group
    )
    grpo = po.method("grpo", group=4, clip=0.1, kl=0).but(**{"credit.scale": po.method("cot2").credit.scale})
    plain = grpo.credit.credited(plain)
    same(plain.advantage, batch.advantage)
    loss = grpo.objective(plain, po.Evaluation(logp=discrete_logp(policy, tokens))).loss
    theirs = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(policy.parameters()))])
    for root in (True, False):
        ours = slope(po.method("cot2", group=4, root=root).objective, batch, policy)
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-13)
    assert theirs.abs().max() > 1e-4


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("flat", [False, True])
def test_the_odds_of_all_draws_sum_to_one_and_are_those_that_are_drawn(count: int, flat: bool) -> None:
    law, g = Tokens(count=count, flat=flat), torch.Generator().manual_seed(0)
    log_alpha = law.shaped(torch.randn(4, generator=g, dtype=torch.double)).log_softmax(0)
    odds: dict[tuple[int, ...], float] = {}
    for draws in itertools.product(range(4), repeat=count):
        thought = torch.nn.functional.one_hot(torch.tensor(draws), 4).double().mean(0)
        logp = law.logp(log_alpha, thought, torch.ones(4, dtype=torch.bool))
        assert logp.item() == pytest.approx(log_alpha[list(draws)].sum().item(), abs=1e-12)
        key = tuple((thought * count).round().int().tolist())
        odds[key] = odds.get(key, 0.0) + logp.exp().item()
    assert sum(odds.values()) == pytest.approx(1, abs=1e-12)
    many = 20_000
    drawn = law.draw(log_alpha.expand(many, 4), torch.ones(many, 4, dtype=torch.bool), g) * count
    for key, p in odds.items():
        share = (drawn.round().int() == torch.tensor(key)).all(1).double().mean().item()
        assert share == pytest.approx(p, abs=4.5 * (p * (1 - p) / many) ** 0.5 + 1e-9)


def test_the_ratio_of_a_thought_is_the_geometric_mean_or_the_product() -> None:
    old, policy = policy_of(Tokens(count=3), seed=1), policy_of(Tokens(count=3), seed=2)
    batch = batch_of(old)
    said = policy.evaluate(batch)
    whole = po.methods.cot2.DrawMeanRatio(root=False)(batch, said)
    rooted = po.methods.cot2.DrawMeanRatio()(batch, said)
    same(whole, said.logp - batch.rollout_logp)
    thought = batch.extras["thought"]
    same(rooted[thought], whole[thought] / 3)
    last = batch.mask & ~thought
    same(rooted[last], whole[last])
    # One row by hand: the thought's tokens, and the quotients of their probabilities.
    row, t = 0, int(thought[0].int().argmax())
    now, then = (p.law(batch.extras["mixture"], thought)[row, t].exp() for p in (policy, old))
    counts = (batch.extras["mixture"][row, t] * 3).round().int()
    product = torch.prod((now / then) ** counts)
    assert rooted[row, t].exp().item() == pytest.approx(product.item() ** (1 / 3), rel=1e-10)


def test_the_dirichlet_is_that_of_torch_on_the_kept_tokens() -> None:
    law, g = Simplex(scale=5.0, floor=0.05), torch.Generator().manual_seed(0)
    alpha = torch.tensor([0.5, 0.3, 0.17, 0.03], dtype=torch.double)
    kept = law.kept(alpha.log())
    assert kept.tolist() == [True, True, True, False]
    others = torch.tensor([0.01, 0.4, 0.29, 0.3], dtype=torch.double)  # clamped where it is kept and small
    x = law.draw(alpha.log().expand(5000, 4), kept.expand(5000, 4), g)
    assert (x[:, 3] == 0).all()
    torch.testing.assert_close(x.sum(1), torch.ones(5000).double())
    for p in (alpha, others):
        a = p[:3].clamp(min=0.05)
        reference = torch.distributions.Dirichlet(5 * a / a.sum())
        found = law.logp(p.log().expand(5000, 4), x, kept.expand(5000, 4))
        torch.testing.assert_close(found, reference.log_prob(x[:, :3]), rtol=1e-10, atol=1e-10)
        if p is alpha:
            error = 5 * (reference.variance / 5000).sqrt()
            assert ((x[:, :3].mean(0) - reference.mean).abs() < error).all()
            assert (x[:, :3].var(0) / reference.variance - 1).abs().max() < 0.1


def test_the_density_ratio_of_thoughts_has_mean_one() -> None:
    """E_old[new / old] = 1 on the union of what both keep, where it has little variance."""
    law, g = Simplex(scale=20.0, floor=0.05), torch.Generator().manual_seed(1)
    old, new = (torch.tensor(p, dtype=torch.double).log() for p in ([0.5, 0.46, 0.04], [0.42, 0.44, 0.14]))
    kept = law.kept(old) | law.kept(new)
    assert kept.all()
    many = 20_000
    kept = kept.expand(many, 3)
    x = law.draw(old.expand(many, 3), kept, g)
    ratio = (law.logp(new.expand(many, 3), x, kept) - law.logp(old.expand(many, 3), x, kept)).exp()
    assert ratio.mean().item() == pytest.approx(1, abs=5 * (ratio.var().item() / many) ** 0.5)
    assert ratio.std() > 0.1


def test_a_reference_widens_what_is_kept() -> None:
    policy, reference = policy_of(Simplex(floor=0.08), seed=1), policy_of(Simplex(floor=0.08), seed=5)
    alone, beside = batch_of(policy), batch_of(policy, reference=reference)
    first = int(alone.extras["thought"][0].int().argmax())
    narrow, wide = (b.extras["support_mask"][:, first] for b in (alone, beside))
    theirs = reference.law(beside.extras["mixture"], beside.extras["thought"])[:, first].exp() >= 0.08
    assert torch.equal(wide, narrow | theirs)
    assert (wide != narrow).any()
    torch.testing.assert_close(beside.ref_logp, reference.evaluate(beside).logp)


def test_many_tokens_come_to_the_law_itself() -> None:
    log_alpha = torch.tensor([0.5, 0.3, 0.2], dtype=torch.double).log().expand(8, 3)
    everything, g = torch.ones(8, 3, dtype=torch.bool), torch.Generator().manual_seed(0)
    many, soft = Tokens(count=40_000).draw(log_alpha, everything, g), Certain().draw(log_alpha, everything, g)
    assert (many - soft).abs().max() < 0.02
    assert Certain(likeliest=True).draw(log_alpha, everything, g)[0].tolist() == [1, 0, 0]


def test_csft_is_cross_entropy_and_with_one_trace_the_likelihood() -> None:
    policy = policy_of(Tokens())
    csft = po.method("cot2", stage=1)
    batch = csft.compute_advantages(csft.sampling(source_of(policy)))
    law = policy.law(batch.extras["mixture"], batch.extras["thought"])
    by_hand = [
        -sum(float(a * p) for a, p in zip(batch.extras["targets"][b, t], law[b, t], strict=True))
        for b, t in batch.mask.nonzero().tolist()
    ]
    loss = csft.objective(batch, policy.evaluate(batch, csft.objective.required_outputs)).loss
    assert loss.item() == pytest.approx(sum(by_hand) / len(by_hand), rel=1e-10)
    source = MixtureSource(policy, TASK.prompts, TASK.right, TASK.path.double(), rows=32)
    shown = csft.compute_advantages(csft.sampling(source))
    same(slope(csft.objective, shown, policy), slope(po.method("sft").objective, shown, policy))


def test_the_task_is_what_it_says() -> None:
    for n in range(len(TASK.prompts)):
        a, b = TASK.prompts[n, 1:].tolist()
        totals = [s * a + t * b for s in (1, -1) for t in (1, -1)]
        least = min(x for x in totals if x >= 0)
        zero = 1 + 3 + 2 * 3
        assert TASK.right[n] == zero + least
        assert TASK.every[n, 0, [zero + a, zero - a]].tolist() == [0.5, 0.5]
        assert TASK.every[n, 1].argmax() == TASK.path[n, 1].argmax() == TASK.right[n]
        assert abs(int(TASK.path[n, 0].argmax()) - zero) == a
    held = {tuple(sorted(p[1:].tolist())) for p in TASK.prompts[TASK.held_out]}
    known = {tuple(sorted(p[1:].tolist())) for p in TASK.prompts[~TASK.held_out]}
    assert held
    assert not held & known


def test_it_learns_and_micro_batches_add_up() -> None:
    policy = policy_of(Tokens(count=2))
    source, everyone = source_of(policy), torch.arange(len(TASK.prompts))
    fit(po.method("cot2", stage=1), source, steps=60, rate=0.01)
    before = accuracy(policy, TASK, everyone)
    fit(po.method("cot2"), source, steps=40, rate=0.003)
    assert accuracy(policy, TASK, everyone) > max(before, 0.5)
    batch = po.method("cot2", group=4).compute_advantages(batch_of(policy_of(Tokens(count=2), seed=3)))
    objective = po.method("cot2").objective
    same(sum(slope(objective, part, policy) for part in batch.split(5)), slope(objective, batch, policy))


def test_what_has_no_mixtures_is_refused() -> None:
    assert LANGUAGE.lacking(po.method("cot2")) == [Lack("methods.cot2.DrawMeanRatio", "field", "extras.drawn")]
    found = LANGUAGE.lacking(po.method("cot2", stage=1))
    assert found == [Lack("methods.cot2.SoftTargets", "field", "extras.targets")]
    policy = policy_of(Tokens())
    batch = batch_of(policy)
    with pytest.raises(SupportError, match="no support of tokens"):
        policy.evaluate(batch.replace(support=po.Support(temperature=0.5)))
    with pytest.raises(ExperienceError, match=r"MixturePolicy needs experience.extras\['support_mask'\]"):
        policy.evaluate(Experience(mask=batch.mask, extras={"mixture": batch.extras["mixture"]}))
    with pytest.raises(ValueError, match="positions are requested"):
        policy.sample(TASK.prompts, 9, torch.Generator())
    with pytest.raises(ValueError, match="count must be >= 1"):
        Tokens(count=0)
    with pytest.raises(ValueError, match="stage must be 1 or 2"):
        po.method("cot2", stage=3)
