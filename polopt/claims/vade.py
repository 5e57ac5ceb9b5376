"""These programs measure what the paper of VADE claims."""

from polopt.claim import Finding, claim
from polopt.lab.budgets import mixed_found
from polopt.methods.grpo import grpo
from polopt.methods.vade import vade


@claim(
    "More groups hold right and wrong answers, and it finds them again when the policy has changed.",
    kind="headline",
    baseline="tasks in random order; and counts that never fade",
)
def finds_the_undecided() -> Finding:
    even, still, ours = (mixed_found(s) for s in (grpo(group=8, kl=0), vade(keep_all=1, keep_used=1), vade()))
    names = ("random order", "no fading", "two scales")
    measured = {
        f"{n}, {when}": x
        for n, xs in zip(names, (even, still, ours), strict=True)
        for when, x in zip(("before", "after"), xs, strict=True)
    }
    return Finding(
        measured=measured,
        criterion="before the change: no fading >= random order + 0.15; after it: two scales >= no fading + 0.05",
        holds=still[0] >= even[0] + 0.15 and ours[1] >= still[1] + 0.05,
        note="400 tasks of logits N(-1, 3), 16 x 8 rollouts a batch, 150 batches; then every logit jumps by 4, up or "
        "down, and 150 more. While nothing changes, fading costs: two scales are between random order and no fading.",
    )
