"""GTAlign: welfare, texts and units of a source, against plain computations; identities exact in float64."""

from __future__ import annotations

import itertools
import json
import math
import statistics

import pytest
import torch
from sentences import batch_of, same, slope

import polopt as po
from polopt.credit import RelativeAdvantage
from polopt.experience import Experience
from polopt.features.groupings import WholeBatch
from polopt.fields import ExperienceError
from polopt.lab.problems import digits
from polopt.methods.gtalign import (
    CELLS,
    DistinctPayoffs,
    LegiblePayoffs,
    StandardisedReturns,
    arithmetic_mean,
    choose,
    distinct,
    efficient,
    payoffs,
    standardised,
)
from polopt.rewards import (
    Blocks,
    Brevity,
    ConditionalReward,
    GeometricMean,
    HasBlock,
    KLPenalty,
    LeadingBlocks,
    LengthWindow,
    MinimumReward,
    OutcomeReward,
    PositiveReward,
    SumOfRewards,
    geometric_mean,
    least,
)
from polopt.rewards.blocks import block, in_order


def utilities(seed: int = 0) -> torch.Tensor:
    return torch.rand(2, 40, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def test_welfare_is_what_the_formulas_say() -> None:
    u, w = utilities(), torch.tensor([2.0, 1.0], dtype=torch.double)
    for n, (a, b) in enumerate(u.T.tolist()):
        assert geometric_mean(u, w)[n].item() == pytest.approx((a**2 * b) ** (1 / 3), rel=1e-12)
        assert arithmetic_mean(u, w)[n].item() == pytest.approx((2 * a + b) / 3, rel=1e-12)
        assert least(u, w)[n].item() == min(a, b)


def test_equal_utilities_are_the_welfare_and_a_weight_of_one_is_one_party() -> None:
    u, one = utilities(), torch.ones(2, dtype=torch.double)
    for rule in (geometric_mean, arithmetic_mean, least):
        torch.testing.assert_close(rule(u[:1].expand(2, -1), one), u[0], rtol=1e-12, atol=0)
        torch.testing.assert_close(rule(u, torch.tensor([0.0, 1.0]).double()), u[1], rtol=1e-12, atol=0)


def test_two_losses_are_no_gain() -> None:
    u, w = torch.tensor([[-3.0, 0.5, 0.0], [-2.0, 0.5, 1.0]], dtype=torch.double), torch.ones(2, dtype=torch.double)
    assert geometric_mean(u, w, floor=1e-4).tolist() == pytest.approx([1e-4, 0.5, 1e-2], rel=1e-12)
    assert geometric_mean(u, w).tolist() == pytest.approx([0.0, 0.5, 0.0], rel=1e-12)


def test_efficient_choices_by_brute_force() -> None:
    for seed in range(20):
        u = (10 * utilities(seed)[:, :7]).round() / 10  # with ties
        for n in range(7):
            beaten = any(
                all(u[k, m] >= u[k, n] for k in (0, 1)) and any(u[k, m] > u[k, n] for k in (0, 1)) for m in range(7)
            )
            assert efficient(u)[n].item() is not beaten


def test_a_price_moves_the_choice_of_a_sum_and_not_that_of_a_product() -> None:
    game = torch.tensor([[0.9, 0.6], [0.4, 0.5]], dtype=torch.double)
    assert choose(game, geometric_mean) == 0
    assert choose(game, arithmetic_mean) == 0
    price = torch.tensor([1.0, 10.0], dtype=torch.double)
    assert choose(game, arithmetic_mean, price) == 1
    assert choose(game, geometric_mean, price) == 0
    by_choice = torch.tensor([[1.0, 1.0], [1.0, 2.0]], dtype=torch.double)
    assert choose(game, geometric_mean, by_choice) == 1


def rows(*answers: str, outcome: list[float] | None = None) -> Experience:
    B = len(answers)
    return Experience(
        mask=torch.ones(B, 3, dtype=torch.bool),
        outcome=torch.tensor(outcome or [1.0] * B, dtype=torch.double),
        rollout_logp=torch.zeros(B, 3),
        ref_logp=torch.ones(B, 3),
        extras={"answer": list(answers)},
    )


def table(user: list[float], model: list[float]) -> str:
    return json.dumps({c: {"user": u, "LLM": m} for c, u, m in zip(CELLS, user, model, strict=True)})


def test_blocks_once_in_order_and_nothing_else() -> None:
    good = "<a>x</a> <b>\ny</b>"
    for text in (good, f"  {good}\n"):
        assert in_order(text, ("a", "b"))
    for text in ("", "<b>y</b><a>x</a>", good + "z", "<a>x</a>", good + "<a>x</a>", "<a><b>x</a></b><b>"):
        assert not in_order(text, ("a", "b"))
    assert (block(good, "a"), block(good, "b"), block(good, "c"), block("<a>x", "a")) == ("x", "y", None, None)


def test_payoffs_are_read_or_refused() -> None:
    user, model = [1.0, 2.0, 3.0, 4.0, 5.0, 0.0], [1.0, 2.05, 6.0, 4.0, 5.0, 0.0]
    found = payoffs(table(user, model))
    assert found is not None
    assert found.tolist() == [user, model]
    # Two cells of six differ, one of them by more than a tenth.
    assert distinct(found) == pytest.approx((2 / 12) + (1 / 12), rel=1e-12)
    plain = json.loads(table(user, model))
    for spoilt in (
        {k: v for k, v in plain.items() if k != "DQ_DA"},
        plain | {"more": plain["DQ_DA"]},
        plain | {"DQ_DA": 1.0},
        plain | {"DQ_DA": {"user": "1", "LLM": 1.0}},
        plain | {"DQ_DA": {"user": 1.0}},
        [1, 2],
    ):
        assert payoffs(json.dumps(spoilt)) is None
    assert payoffs("{") is None
    assert payoffs("[" * 100_000) is None
    for literal in (str(plain), str(plain).replace("'", "\u2018"), table(user, model).replace('"', "\u201d")):
        read = payoffs(literal)
        assert read is not None
        assert read.tolist() == [user, model]
    assert payoffs(table([math.nan] * 6, model)) is None


def test_any_unequal_payoffs_have_all_of_the_reward_for_them() -> None:
    nonsense = f"<payoff>{table([1.0] * 6, [2.0] * 6)}</payoff>"
    assert DistinctPayoffs()(rows(nonsense, "<payoff></payoff>", "")).tolist() == [1.0, 0.0, 0.0]
    assert LegiblePayoffs()(rows(nonsense, "<payoff></payoff>", "")).tolist() == [1.0, 0.0, 0.0]


def test_lengths_in_every_unit() -> None:
    text = rows("<t>one two three</t> four", "")
    sigmoid = lambda x: 1 / (1 + math.exp(-x))  # noqa: E731
    window = lambda n: sigmoid(0.5 * (n - 2)) * sigmoid(0.5 * (4 - n))  # noqa: E731
    for unit, name, counts in (
        ("words", "t", (3, 0)),
        ("words", None, (4, 0)),
        ("characters", "t", (13, 0)),
        ("decisions", None, (3, 3)),
    ):
        found = LengthWindow(low=2, high=4, steepness=0.5, of=unit, block=name)(text).tolist()  # type: ignore[arg-type]
        assert found == pytest.approx([window(n) for n in counts], rel=1e-5)
    brief = Brevity(scale=5.0, of="characters", block="t")(text).tolist()
    assert brief == pytest.approx([math.exp(-13 / 5), 1.0], rel=1e-5)


THOUGHT = "x" * 100
UNEQUAL, EQUAL = table([1.0] * 6, [2.0] * 6), table([1.0] * 6, [1.0] * 6)


def written(payoff: str = UNEQUAL, thought: str = THOUGHT, said: str = "a b c") -> str:
    return f"<thinking>{thought}</thinking><payoff>{payoff}</payoff>\n<analyze>so</analyze><response>{said}</response>"


def utilities_of(text: str, quality: float, form: float, apart: float) -> tuple[float, float]:
    """The user's and the model's, by the formulas, of an answer whose form and payoffs are worth so much."""
    window = lambda n, low, high: 1 / ((1 + math.exp(0.005 * (low - n))) * (1 + math.exp(0.005 * (n - high))))  # noqa: E731
    before, _, rest = text.partition("<response>")
    said = len(rest.partition("</response>")[0].split())
    user = 1e-4 + 0.5 * quality + 0.2 * window(said, 20, 500) + 0.3 * math.exp(-len(before) / 500)
    model = 1e-4 + 0.4 * quality + 0.2 * form + 0.2 * apart + 0.2 * window(len(text.split()), 500, 1000)
    return user, model


GAMES = {
    # answer: quality, form, and what its payoffs are worth; None where nothing can be read and all of it is worth 0
    "well-formed": (written(), 0.5, (1.0, 1.0)),
    "no blocks": ("a b c", 1.0, None),
    "a payoff that cannot be read": (written("{"), 1.0, None),
    "no response": (written().replace("response>", "answer>"), 1.0, None),
    "a response that never ends": (written().replace("</response>", ""), 1.0, None),
    "a literal of Python": (written(str(json.loads(UNEQUAL))), 0.25, (1.0, 1.0)),
    "something before": ("Sure. " + written(), 0.25, (0.0, 1.0)),
    "something behind": (written() + " Bye.", 0.25, (0.0, 1.0)),
    "a line behind": (written() + "\nBye.", 0.25, (1.0, 1.0)),
    "an analysis twice": (written().replace("so", "so</analyze><analyze>"), 1.0, (1.0, 1.0)),
    # Everything before the response costs, not the thinking alone.
    "a long analysis": (written().replace("so", "so " * 400), 1.0, (1.0, 1.0)),
    # The model's utility is 0.02 and the user's 0.002: no floor holds them up.
    "worth little": ("Sure. " + written(EQUAL, "y" * 3000, "z " * 3000), 0.0, (0.0, 0.0)),
}


@pytest.mark.parametrize("case", GAMES)
def test_gtalign_by_hand(case: str) -> None:
    text, quality, parts = GAMES[case]
    user, model = (0.0, 0.0) if parts is None else utilities_of(text, quality, *parts)
    batch = rows(text, outcome=[quality])
    assert po.method("gtalign").reward(batch).item() == pytest.approx(math.sqrt(user * model), rel=1e-5)
    alone = po.method("gtalign", model=0.0).reward(batch).item()
    assert alone == pytest.approx(user, rel=1e-5)
    if case == "worth little":
        assert max(user, model) < 0.03


def test_leading_blocks_and_a_block_anywhere() -> None:
    good = "<a>x</a> <b>\ny</b>"
    texts = (good, good + "\nz", good + "z", "z" + good, "<b>y</b><a>x</a>", "<a>x</a>", good + good)
    assert LeadingBlocks(names=["a", "b"])(rows(*texts)).tolist() == [1, 1, 0, 0, 0, 0, 1]
    assert HasBlock(name="b")(rows(*texts)).tolist() == [1, 1, 1, 1, 1, 0, 1]


@pytest.mark.parametrize("by", ["zscore", "minmax", "robust", "cdf"])
def test_units_of_a_source_against_plain_loops(by: str) -> None:
    g = torch.Generator().manual_seed(1)
    group = torch.tensor([3, 1, 3, 3, 1, 3, 9, 1, 3])
    x = torch.randn(9, generator=g, dtype=torch.double)
    x[3] = x[0]
    expected = torch.zeros_like(x)
    for number in (1, 3, 9):
        mine = x[group == number].tolist()
        for row in (group == number).nonzero().flatten().tolist():
            value = x[row].item()
            if by == "zscore":
                std = statistics.stdev(mine) if len(mine) > 1 else 0.0
                new = (value - statistics.fmean(mine)) / (std + 1e-8)
            elif by == "minmax":
                new = (value - min(mine)) / (max(mine) - min(mine) + 1e-8)
            elif by == "robust":
                middle = statistics.median(mine)
                spread = statistics.median([abs(m - middle) for m in mine])
                new = math.tanh((value - middle) / (1.4826 * spread + 1e-8))
            else:
                new = (sum(m < value for m in mine) + 0.5 * sum(m == value for m in mine)) / len(mine)
            expected[row] = new
    torch.testing.assert_close(standardised(x, group, by), expected, rtol=1e-10, atol=1e-12)  # type: ignore[arg-type]


def test_units_do_not_change_what_divides_by_a_group_s_own() -> None:
    # All rows of one kind: a z-score of the batch is one affine map, which a group's z-score undoes up to its eps.
    tree, policy = digits()
    batch = batch_of(tree, policy)
    exact = RelativeAdvantage(scale=po.credit.GroupStd(eps=0.0))
    ours, plain = (po.method("grpo", kl=0).but(credit=c) for c in (StandardisedReturns(credit=exact), exact))
    torch.testing.assert_close(slope(ours, batch, policy), slope(plain, batch, policy), rtol=1e-10, atol=1e-14)


def test_a_critic_learns_the_units_in_which_it_is_used() -> None:
    tree, policy = digits()
    batch = batch_of(tree, policy)
    judged = po.method("gtalign", blocks=False).compute_advantages(batch)
    assert judged.reward.mean().item() == pytest.approx(0, abs=1e-12)
    assert judged.reward.std().item() == pytest.approx(1, rel=1e-6)
    assert torch.equal(judged.outcome, batch.outcome)


def test_without_texts_it_is_ppo_of_the_welfare() -> None:
    tree, policy = digits()
    batch = batch_of(tree, policy)
    ours = po.method("gtalign")
    plain = po.method("ppo", kl=0)
    same(
        slope(ours.but(reward=OutcomeReward(), credit=plain.credit), batch, policy),
        slope(plain, batch, policy),
    )
    assert {path for path, *_ in po.diff(plain, ours)} == {"reward", "credit"}


def test_refusals() -> None:
    kl = [OutcomeReward(), KLPenalty()]
    with pytest.raises(ExperienceError, match=r"rewards\.GeometricMean needs terms of one reward for each row, \[1\]"):
        GeometricMean(terms=kl)(rows("x"))
    for part, settings, message in (
        (GeometricMean, {"terms": [OutcomeReward()], "floor": 0.0}, "need floor > 0"),
        (GeometricMean, {"terms": [OutcomeReward()], "weights": [-1.0]}, "weights >= 0"),
        (GeometricMean, {"terms": []}, "rewards.GeometricMean needs at least one term"),
        (MinimumReward, {"terms": [OutcomeReward()], "weights": [0.0]}, "a weight > 0"),
        (LengthWindow, {"low": 3, "high": 2}, "low < high"),
        (Brevity, {"scale": 1.0, "block": "t"}, "counted in words or characters"),
        (Brevity, {"scale": 1.0, "before": "t"}, "counted in words or characters"),
        (Brevity, {"scale": 1.0, "of": "words", "block": "t", "before": "u"}, "set one of the two"),
        (LeadingBlocks, {"names": []}, "names of the blocks"),
        (Brevity, {"scale": 0.0}, "scale must be > 0"),
        (Blocks, {"names": []}, "names of the blocks"),
        (po.methods.infocons.ReturnsPlusMeasures, {"measures": [], "weights": []}, "as many weights"),
    ):
        with pytest.raises(ValueError, match=message):
            part(**settings)


def test_sum_still_takes_rewards_by_decision_and_a_gate_does_too() -> None:
    batch = rows("x", "")
    summed = SumOfRewards(terms=[OutcomeReward(), KLPenalty(coefficient=1.0)], weights=[2.0, 1.0])
    assert summed(batch).tolist() == [[1.0, 1.0, 3.0]] * 2
    gated = ConditionalReward(
        reward=summed, when=PositiveReward(reward=Brevity(scale=1e-3, of="characters")), otherwise=-1.0
    )(batch)
    assert gated.tolist() == [[-1.0] * 3, [1.0, 1.0, 3.0]]


def test_no_two_rules_agree_on_all_games() -> None:
    u = torch.rand(200, 2, 6, generator=torch.Generator().manual_seed(2), dtype=torch.double)
    chosen = {r.__name__: [int(choose(game, r)) for game in u] for r in (geometric_mean, arithmetic_mean, least)}
    for a, b in itertools.combinations(chosen.values(), 2):
        assert a != b


def test_everyone_is_one_source() -> None:
    tree, policy = digits()
    batch = batch_of(tree, policy)
    ours = StandardisedReturns(within=WholeBatch()).credited(batch).reward
    returns = batch.outcome
    torch.testing.assert_close(ours, (returns - returns.mean()) / (returns.std() + 1e-8), rtol=1e-10, atol=1e-12)
