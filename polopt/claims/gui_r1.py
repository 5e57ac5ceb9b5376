"""These programs measure what the paper of GUI-R1 claims."""

from typing import Any

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.lab import TokenTree, train
from polopt.lab.effects import More, effect
from polopt.lab.policy import LinearPolicy
from polopt.methods.grpo import grpo
from polopt.methods.gui_r1 import gui_r1
from polopt.worlds import gui_actions
from polopt.worlds.gui_actions import is_right, is_well_formed, read_action
from polopt.worlds.screens import Screens

PROMPTS, KINDS, PLACES = 24, 3, 4


def _answer(kind: str, x: int = 0, y: int = 0, text: str = "no input text", think: str = "<think>a</think>") -> str:
    return f"{think}<answer>[{{'action': '{kind}', 'point': [{x}, {y}], 'input_text': '{text}'}}]</answer>"


POINT, BOX = {"action": "click", "point": [200, 200]}, {"action": "click", "box": [10, 20, 50, 60]}
TYPED, DOWN = {"action": "type", "text": "red oak tree"}, {"action": "scroll", "text": "down"}
# Answer, target, accuracy and form.
TABLE = (
    (_answer("click", 200, 339), POINT, 1, 1),
    (_answer("click", 200, 340), POINT, 0, 1),
    (_answer("click", 299, 298), POINT, 1, 1),
    (_answer("click", 299, 299), POINT, 0, 1),
    (_answer("click", 11, 21), BOX, 1, 1),
    (_answer("click", 10, 40), BOX, 0, 1),
    (_answer("click", 30, 60), BOX, 0, 1),
    (_answer("long_press", 30, 40), BOX, 0, 1),
    (_answer("click", 30, 40, think=""), BOX, 1, 0),
    (_answer("click", 30, 40) + " done", BOX, 1, 0),
    ("<think></think><answer>[{'action': 'click', 'point': [30.5, 40]}]</answer>", BOX, 0, 0),
    ("<think></think><answer>[{'action': 'click', 'point': [30]}]</answer>", BOX, 0, 0),
    ("<think></think><answer>{'action': 'click', 'point': [30, 40]}</answer>", BOX, 0, 0),
    ("<think></think><answer>click(30, 40)</answer>", BOX, 0, 0),
    ("<think></think><answer>[{'action': 'click', 'point': [30, 40]}]", BOX, 0, 0),
    ("click", BOX, 0, 0),
    (_answer("type", text="red oak"), TYPED, 1, 1),
    (_answer("type", text="a red thing"), TYPED, 0, 1),
    (_answer("type", text="red"), TYPED, 1, 1),
    (_answer("type", text="tree one two three four"), TYPED, 0, 1),
    (_answer("type"), TYPED, 0, 0),
    (_answer("scroll", text="down"), DOWN, 1, 1),
    (_answer("scroll", text="downwards"), DOWN, 1, 0),
    (_answer("scroll", text="up"), DOWN, 0, 1),
    (_answer("press_back"), {"action": "press_back"}, 1, 1),
)


@claim(
    "Answers are paid by the paper's rules, at the edges of boxes, distances and shares of words, too.",
    kind="identity",
    baseline="the right kind of action alone",
)
def pays_by_the_rules() -> Finding:
    wrong, differs = 0, 0
    for text, target, right, form in TABLE:
        action = read_action(text)
        found = action is not None and is_right(action, target)
        batch = Experience(
            mask=torch.ones(1, 1, dtype=torch.bool),
            outcome=torch.tensor([float(found)]),
            reward=torch.tensor([float(found)]),
            extras={"signal_format": torch.tensor([float(is_well_formed(text))])},
        )
        paid = gui_r1().reward(batch).item()
        wrong += abs(paid - (0.8 * right + 0.2 * form)) > 1e-6
        differs += (action is not None and action.kind == target["action"]) != bool(right)
    return Finding(
        measured={"answers paid wrongly": wrong, "that the kind alone pays otherwise": differs},
        criterion=f"none of {len(TABLE)} answers; the kind alone pays more than 3 otherwise",
        holds=wrong == 0 and differs > 3,
    )


@claim(
    "Demonstrated answers are right and well formed on screens of all kinds of action.",
    kind="limit",
    baseline="the answer to another screen",
)
def demonstrations_are_right() -> Finding:
    tasks = Screens(size=60, widgets=5, seed=2)
    scores = [tasks.score(tasks[i].solution or "", tasks[i]) for i in range(60)]
    full = sum(score + info["signals"]["format"] for score, info in scores) / 120
    others = sum(tasks.score(tasks[(i + 1) % 60].solution or "", tasks[i])[0] for i in range(60)) / 60
    return Finding(
        measured={"share right and well formed": full, "answers to other screens": others},
        criterion="1, and less than 0.1 for other screens",
        holds=full == 1 and others < 0.1,
    )


@effect(
    "Answers come to have the right form, which accuracy alone does not teach.",
    kind="part",
    method=lambda: gui_r1(kl=0.0),
    controls={"accuracy alone": lambda: grpo(group=5, kl=0.0)},
    step_sizes=(24.0, 72.0, 240.0, 720.0),
    criteria=[More("form", by=0.2)],
    seeds=10,
    cost="slow",
    note="24 screens that share features: the form of the answer, one of 3 kinds of action and one of 4 places; 40 "
    "batches of 5 answers to each. It costs right actions, with which the form shares parameters: see them beside it.",
)
def learns_the_form(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    draw = torch.Generator().manual_seed(seed)
    target = torch.stack([torch.randint(n, (PROMPTS,), generator=draw) for n in (KINDS, PLACES)], 1).tolist()
    answers = [(form, kind, place) for form in range(2) for kind in range(KINDS) for place in range(PLACES)]
    tree = TokenTree(PLACES, answers, lambda p, answer: float(list(answer[1:]) == target[p]), PROMPTS)
    features = torch.randn(len(tree.choices), 32, generator=draw, dtype=torch.double) / 32**0.5
    policy = LinearPolicy(tree, features)
    form = torch.tensor([[float(answer[0]) for answer in answers]] * PROMPTS).double()
    ways = {"rate": step_size, "rows": PROMPTS, "seed": seed, "signals": {"format": form}}
    train(algorithm, tree, policy, steps=40, **ways)  # type: ignore[arg-type]
    probability = tree.log_probabilities(policy).detach().exp()
    return {
        "form": (probability * form).sum(1).mean().item(),
        "right": (probability * tree.outcome).sum(1).mean().item(),
    }


@mutation("The edges of a box are inside.", kills=pays_by_the_rules)
def edges_inside(replace: Replace) -> None:
    import polopt.claims.gui_r1 as here

    own = gui_actions.is_right

    def judged(action: gui_actions.GUIAction, target: dict[str, Any], near: float = 140.0) -> bool:
        if "box" in target:
            left, top, right, bottom = target["box"]
            target = {**target, "box": (left - 1, top - 1, right + 1, bottom + 1)}
        return own(action, target, near)

    replace(here, "is_right", judged)


@mutation("A text with any word in common is right.", kills=pays_by_the_rules)
def any_word(replace: Replace) -> None:
    replace(gui_actions, "_same_words", lambda text, wanted: bool(set(text.split()) & set(wanted.split())))
