"""These programs measure what the paper of GRPO claims."""

from polopt.claim import Finding, claim
from polopt.lab.claims import norms_by_success
from polopt.lab.kl import kl_table, three_actions
from polopt.methods.grpo import grpo


@claim(
    "With rewards 0 and 1 a prompt of success rate p pulls as sqrt(p (1 - p)): hard and easy prompts count more.",
    kind="part",
    baseline="no std: p (1 - p)",
)
def difficulty() -> Finding:
    ours = norms_by_success(grpo(group=512, kl=0), power=0.5)
    plain = norms_by_success(grpo(group=512, kl=0).but(**{"credit.scale": None}), power=1.0)
    return Finding(
        measured={"largest relative error": ours, "without std, against p (1 - p)": plain},
        criterion="both < 0.02",
        holds=ours < 0.02 and plain < 0.02,
    )


@claim(
    "On policy, k3 as a loss pulls along KL(reference || policy), not the other way.", kind="theory", baseline="k1, k2"
)
def kl_direction() -> Finding:
    rows = {(r.estimator, r.ratio, r.on_policy): r for r in kl_table(*three_actions())}
    k1, k2, k3 = (rows[k, False, True] for k in ("k1", "k2", "k3"))
    off = rows["k3", False, False]
    measured = {"k3 to KL(ref || policy)": k3.to_forward, "k3 to KL(policy || ref)": k3.to_reverse}
    measured |= {"k2 to KL(policy || ref)": k2.to_reverse, "k1 to 0": k1.to_zero, "k3 off policy": off.to_forward}
    return Finding(
        measured=measured,
        criterion="k3 to KL(ref || policy), k2 to KL(policy || ref), k1 to 0 < 1e-10; the others > 0.1",
        holds=max(k3.to_forward, k2.to_reverse, k1.to_zero) < 1e-10 and min(k3.to_reverse, off.to_forward) > 0.1,
    )
