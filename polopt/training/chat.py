"""A conversation with a policy, and with the model that it was trained from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from polopt.policies.chat_format import Dialogue
from polopt.policies.engine import NativeEngine
from polopt.policies.language import LanguagePolicy
from polopt.policies.preflight import load_policy as load_model
from polopt.support import Support
from polopt.training.conversion import policy_at
from polopt.training.language_recipe import LanguageRecipe
from polopt.training.origin import entered
from polopt.training.preflight_models import ContextError
from polopt.training.run import CheckpointChoice, Run
from polopt.training.trained import check_kind, load_policy


class ChatSession:
    """A conversation with a policy: its history of messages, which is the context of each further question.

    Without a chat template the tokenizer cannot mark the speaker of a message: then each question stands alone.

    system: a system prompt before the first question. support: temperature, top-k and top-p of the answers. limit: most
    tokens of one.
    """

    def __init__(
        self,
        policy: LanguagePolicy,
        *,
        system: str | None = None,
        support: Support,
        limit: int,
        seed: int = 0,
        chat_template_kwargs: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.policy, self.support, self.limit = policy, support, limit
        self.dialogue = Dialogue(policy.tokenizer, chat_template_kwargs)
        self.engine = NativeEngine(policy)
        self.generator = torch.Generator().manual_seed(seed)
        self.remembers = policy.tokenizer.chat_template is not None
        self.history: list[dict[str, str]] = []
        if system is not None and self.remembers:
            self.history = [{"role": "system", "content": system}]

    def ask(self, question: str) -> str:
        """Samples the answer to one more question.

        Raises:
            ContextError: the conversation leaves no room for an answer in the model's context.
        """
        ids = self.dialogue.opening(question, self.history)
        context = self.policy.context_length
        room = self.limit if context is None else min(self.limit, context - len(ids))
        if room < 1:
            raise ContextError(
                f"{len(ids)} tokens are in the conversation, and the model's context is {context}: begin a new one"
            )
        (answer,) = self.engine.sample(
            [ids],
            group=1,
            support=self.support,
            limit=room,
            stop=self.policy.stop,
            generator=self.generator,
        )
        text = self.dialogue.text(answer.tokens)
        if self.remembers:
            self.history += [{"role": "user", "content": question}, {"role": "assistant", "content": text}]
        return text


def conversations(
    folder: Path | str, *, base: bool = True, checkpoint: CheckpointChoice | None = None, **settings: Any
) -> dict[str, ChatSession]:
    """Opens a conversation with each of a run's policies: "base", the model that it began with (if `base`, and the run
    began with one), and "trained". For a folder with a model there is "model" alone.

    checkpoint: of a run, finished or not; the policy that it ended with if None. settings: of `ChatSession`; the system
    prompt and the arguments of the chat template are the recipe's.

    Raises:
        ConfigError, RunError: there is no policy, base or checkpoint, or it cannot be loaded.
    """
    folder = Path(folder)
    check_kind(folder)
    trained = load_policy(folder) if checkpoint is None else policy_at(folder, checkpoint)
    if not (folder / "recipe.yaml").is_file():
        return {"model": ChatSession(trained, **settings)}
    with entered(Run.open(folder.absolute())) as recipe:
        recipe = LanguageRecipe.require(recipe)
        spec = recipe.policy
        first = load_model(spec.model, dtype=spec.dtype) if base and spec.model is not None else None
        system = recipe.tasks_of(recipe.main_stage).get("system")
    settings |= {"system": system, "chat_template_kwargs": spec.chat_template_kwargs}
    found = {} if first is None else {"base": ChatSession(first, **settings)}
    return {**found, "trained": ChatSession(trained, **settings)}
