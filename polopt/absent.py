"""Published methods that polopt does not have, by their common names: why, and the nearest alternative."""

from __future__ import annotations

from collections.abc import Collection

from polopt.names import closest

PAIRS = (
    "it is not here yet; `dpo`, `ipo` and `simpo` learn from pairs of answers, `sppo` and `inpo` from pairs of the "
    "policy's own"
)
LABELS = "it is not here yet; `kto` learns from answers marked good or bad beforehand, too"
VALUES = "it is not here yet; `dqn`, `sac` and `td3` learn values from replayed transitions, `iql` from logged ones"
NOT_YET = "it is not here yet"
BATCH = (
    "it is not here by name; `grpo` has its advantage with credit.GroupMean and credit.GroupStd within "
    "features.WholeBatch, `tricks-lite-ppo` the group's mean and the batch's std"
)
BATCH_STD = (
    "it is not here by name; `tricks-lite-ppo` has the group's mean and the batch's std too, of the rewards before "
    "the mean is taken off"
)

# name -> the reason, and the nearest alternative: methods of polopt in backquotes.
ABSENT = {
    **dict.fromkeys(("cpo", "rrhf", "rpo", "robust-dpo", "exo", "nca"), PAIRS),
    **dict.fromkeys(("iterative-dpo", "xpo", "dno"), PAIRS),
    "spin": PAIRS,
    "bco": LABELS,
    **dict.fromkeys(("ddqn", "double-dqn"), "it is `dqn` with double=True"),
    **dict.fromkeys(("rainbow", "c51", "qr-dqn", "iqn"), VALUES),
    **dict.fromkeys(("redq", "tqc", "cql", "bcq"), VALUES),
    "ddpg": "it is not here by name; `td3` is it with delay=1, smoothing=0 and one critic head",
    "a2c": f"{NOT_YET}; `ppo` with one epoch and one minibatch a batch takes the same first step",
    "a3c": f"{NOT_YET}; `ppo` with one epoch and one minibatch a batch takes the same first step as A2C",
    "trpo": f"{NOT_YET}; `ppo` replaces its constrained step by a clip",
    "npg": f"{NOT_YET}; `ppo` replaces a constrained step by a clip",
    "mpo": f"{NOT_YET}; `mpo-meta` and `mpo-easyhard` are other methods of that abbreviation",
    "impala": f"{NOT_YET}; `ppo` is the actor-critic method here",
    "appo": f"{NOT_YET}; `ppo` is the method that it runs asynchronously",
    "vapo": f"{NOT_YET}; `ppo` is what it begins from",
    "vc-ppo": f"{NOT_YET}; `ppo` is what it begins from",
    "gmpo": f"{NOT_YET}; `gspo` has a ratio that is a geometric mean too, and clips it as a whole",
    "sapo": f"{NOT_YET} (soft adaptive policy optimisation); `sapo-swarm` is another method of that abbreviation",
    "gfpo": f"{NOT_YET}; `grpo` is what it begins from",
    "cppo": f"{NOT_YET}; `grpo` is what it begins from",
    "gpg": NOT_YET,
    "opo": NOT_YET,
    "reinforce++": BATCH,
    "reinforce-plus-plus": BATCH,
    "reinforce-pp": BATCH,
    "rpp": BATCH,
    "reinforce++-baseline": BATCH_STD,
    "reinforce-plus-plus-baseline": BATCH_STD,
    "tis": "it is a correction, not a method: `objectives.TruncatedImportance` is a part that a method takes",
    "prime": f"{NOT_YET}; it needs a reward model of processes that learns online",
    "lite-ppo": "it is `tricks-lite-ppo` here",
    "bapo": "it is `bapo-clip` here",
    "srpo": "`srpo-routing` is one method of that abbreviation",
    "drgrpo": "it is `dr-grpo` here",
    "grpo-done-right": "it is `dr-grpo` here",
    "raft++": "`raft` is here; its variant with importance weights is not",
    "best-of-n": "it is a way of sampling; `raft` learns from the best of each prompt's answers",
    "bc": "it is `sft` here",
    "behaviour-cloning": "it is `sft` here",
    "behavior-cloning": "it is `sft` here",
}


def unknown_method(slug: str, known: Collection[str]) -> str:
    """Returns the end of the sentence on an unknown method: why it is not here, or the name that was likely meant.

    A name is only suggested where it is a typing error away: most methods' names are similar to each other.
    """
    if reason := ABSENT.get(slug.replace("_", "-").replace(" ", "-").lower()):
        return f": {reason}"
    close = closest(slug, known, cutoff=0.72)
    hint = f"; did you mean {close!r}?" if close else ""
    return f"{hint or ';'} `polopt methods` lists all {len(known)}"
