"""These programs measure what the paper of CISPO claims."""

from polopt.claim import Finding, claim
from polopt.lab.claims import push, rare_arm
from polopt.methods.cispo import cispo
from polopt.objectives import Clip, ClipWeight


@claim("Outside PPO's band each token still has the gradient clip(r) A.", kind="identity", baseline="PPO's clip: none")
def keeps_gradient() -> Finding:
    ratios = (1.5, 2.0, 10.0)
    error = max(abs(push(ClipWeight(), ratio) - min(ratio, 5.0)) for ratio in ratios)
    clipped = max(abs(push(Clip(), ratio)) for ratio in ratios)
    return Finding(
        measured={"largest error": error, "PPO's clip": clipped},
        criterion="error < 1e-12 at ratios 1.5, 2, 10; PPO's clip 0",
        holds=error < 1e-12 and clipped == 0,
    )


@claim("One rare success keeps growing through 32 small steps on its batch.", kind="part", baseline="PPO's clip 0.2")
def rare_success() -> Finding:
    ours = rare_arm(cispo(), steps=32)
    clipped = rare_arm(cispo().but(**{"objective.trust": Clip()}), steps=32)
    return Finding(
        measured={"growth": ours, "PPO's clip": clipped},
        criterion="growth - 1 is > 1.5x that of PPO's clip",
        holds=ours - 1 > 1.5 * (clipped - 1),
    )
