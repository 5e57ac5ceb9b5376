"""GRPOTrainer with a method's credit, selection and objective in place of its own."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import GRPOConfig, GRPOTrainer

from polopt import catalogue, ops
from polopt.algorithm import Algorithm
from polopt.bridges.capabilities import BridgeError
from polopt.bridges.trl.batch import PLACE, AllProcesses, ScoredGeneration, decided, experience_of
from polopt.bridges.trl.hidden_state_hook import HiddenStateHook
from polopt.bridges.trl.settings import name_of, names_of, paper_of, settle
from polopt.bridges.trl.trl_capabilities import host_of
from polopt.evaluation import Evaluation, Loss, add_metrics
from polopt.experience import Experience
from polopt.fields import OLD
from polopt.support import Support

STATE = "polopt.safetensors"
# Further inputs of a row for vision models.
SEEN = (
    *("pixel_values", "image_grid_thw", "num_images", "pixel_attention_mask", "spatial_shapes", "num_tiles"),
    *("image_sizes", "token_type_ids", "mm_token_type_ids", "image_position_ids"),
)
logger = logging.getLogger(__name__)


class PoloptTrainer(GRPOTrainer):
    """Any polopt method as a trainer of TRL.

    method: a name, a name with settings as `{"name": "gspo", "low": 1e-3}`, or an `Algorithm`.

    All else is as in `GRPOTrainer`, whose data, generation, rewards, PEFT, accelerate, logging and checkpoints stay.
    `algorithm` is the algorithm as it runs, `notes` lists the changes of it or of the config.

    The weighted sum of TRL's reward functions is the `outcome`; rows for which all are NaN are left out. Every
    normaliser is over the whole optimiser batch: all processes and all accumulated micro-batches.

    Raises:
        BridgeError: the method needs a field that TRL does not provide, or the config contradicts the method.
        ValueError, TypeError: there is no such method, or it has no such setting.
    """

    _tag_names = ["trl", "polopt"]  # noqa: RUF012
    _name = "polopt"
    # TRL's own attributes, with looser types in transformers.
    model: Any
    args: Any
    num_generations: Any
    num_generations_eval: Any
    max_completion_length: Any
    _logs: dict[str, Any]
    _buffered_inputs: Any

    def __init__(
        self,
        model: Any,
        method: str | Mapping[str, Any] | Algorithm,
        reward_funcs: Any = None,
        args: GRPOConfig | None = None,
        train_dataset: Any = None,
        **others: Any,
    ) -> None:
        algorithm, name = catalogue.sentence(method), name_of(method)
        columns = getattr(train_dataset, "column_names", None) or ()
        host_of(names_of(reward_funcs), columns).refuse(name, algorithm)
        args, self.algorithm, self.notes = settle(GRPOConfig() if args is None else args, name, algorithm)
        for note in self.notes:
            logger.warning("%s", note)
        super().__init__(model=model, reward_funcs=reward_funcs, args=args, train_dataset=train_dataset, **others)
        self._paper = paper_of(method)
        self.algorithm.to(self.accelerator.device)
        outputs = self.algorithm.required_outputs
        names = {name.removeprefix("extras.") for name in outputs if name.startswith("extras.")}
        critic = "value" in self._needs | outputs
        self.hidden_states = HiddenStateHook(self.model, critic=critic, names=names) if critic or names else None
        self._everyone = AllProcesses(self.accelerator)
        self._scored: ScoredGeneration
        # The selected rows of the last generation, of all processes, in training (True) and in evaluation; of these
        # the current optimiser batch; and its measurements so far.
        self._batches: dict[bool, Experience] = {}
        self._window: Experience
        self._measured: list[dict[str, Tensor]] = []

    @property
    def _needs(self) -> frozenset[str]:
        """All fields of the batch that parts read at some time."""
        return self.algorithm.required_fields

    @property
    def critic(self) -> torch.nn.Linear | None:
        """The value head, for methods that need one."""
        return None if self.hidden_states is None else self.hidden_states.critic

    @property
    def _support(self) -> Support:
        sampling: Any = self.algorithm.sampling
        return sampling.support

    # What TRL calls ---------------------------------------------------------------------------------------------

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Tensor:
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self._scored = ScoredGeneration(inputs, prompts, completions, rewards)
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        # Evaluation does not change the parts' state.
        algorithm = self.algorithm if self.model.training else copy.deepcopy(self.algorithm).eval()
        batch = self._experience(output)
        everything, batch = len(batch), batch[~batch.outcome.isnan()]
        for select in algorithm.sampling.filters:
            batch = select(batch)
        if batch.mask.any():  # filters may leave no decision
            batch = algorithm.with_advantages(batch)
            self._log_advantages(batch, everything)
            batch = algorithm.filtered(batch)
        self._batches[self.model.training] = batch
        output[PLACE] = self._everyone.places(len(output["prompt_ids"]), output["prompt_ids"].device)
        return output

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        training = self.model.training
        steps = self.args.gradient_accumulation_steps if training else 1
        place = self._step % steps if training else 0
        if place == 0:
            self._window = self._optimiser_batch(model, self._pieces(steps) if training else [inputs])
        window, mask = self._window, decided(inputs)
        evaluation, router = self._policy_evaluation(model, inputs)
        loss = 0 * evaluation.logp.sum()  # every process reaches every parameter, even one without rows of its own
        measured = {"entropy": torch.where(mask, evaluation.entropy, 0).sum().detach(), "decisions": mask.sum()}
        rows, local_rows = (inputs[PLACE][:, None] == window.extras[PLACE]).nonzero(as_tuple=True)
        if len(local_rows) and window.advantage is not None:
            result = self._objective_loss(window.piece(local_rows), _padded(evaluation, window.mask.shape[1])[rows])
            loss = loss + result.loss
            measured |= result.metrics
        self._measured.append(measured)
        if place == steps - 1:
            self._log_measured()
            if training and (self._step + 1) % self._generation == 0 and window.advantage is not None:
                self.algorithm.step()
        # Micro-batches are summed; processes are averaged.
        return loss * self._everyone.count + router / steps

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        if self.args.should_save:
            folder = Path(self._get_output_dir(trial=trial), f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
            save_file({k: v.detach().contiguous().cpu() for k, v in self._state().items()}, folder / STATE)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        if not (path := Path(checkpoint, STATE)).is_file():
            raise BridgeError(
                f"{checkpoint} holds no {STATE}: it is no checkpoint of a PoloptTrainer; begin from its model"
            )
        found = load_file(path)
        self.algorithm.load_state_dict(_behind("algorithm.", found))
        if self.critic is not None:
            self.critic.load_state_dict(_behind("critic.", found))

    # The batch --------------------------------------------------------------------------------------------------

    @property
    def _generation(self) -> int:
        """Micro-batches of training between two generations."""
        return self.args.steps_per_generation * self.num_iterations

    def _experience(self, output: dict[str, Any]) -> Experience:
        """Returns all rows of the generation, of all processes."""
        algorithm, needs = self.algorithm, self._needs
        parts = (algorithm.sampling, algorithm.reward, algorithm.credit, *algorithm.select)
        read_before = frozenset[str]().union(*(part.required_fields for part in parts))
        evaluated = {name for name in needs if name in ("entropy", "value", "final_value") or name.startswith(OLD)}
        unknown = "old_per_token_logps" not in output
        if unknown and ({"rollout_logp", "old_logp"} & read_before or "sampling_per_token_logps" in output):
            evaluated |= {"rollout_logp"}
        evaluation = self._assess(output) if evaluated else None
        batch = experience_of(
            output,
            self._scored,
            evaluation,
            self._everyone,
            needs,
            names=self.reward_func_names,
            weights=self.reward_weights,
            group=self.num_generations if self.model.training else self.num_generations_eval,
            ends=self.eos_token_ids,
            horizon=self.max_completion_length,
            support=self._support,
        )
        if "extras.prompt_logp" in needs:
            batch = batch.replace(extras={"prompt_logp": self._everyone.rows(self._prompt_logp(output))})
        return batch

    def _pieces(self, steps: int) -> list[dict[str, Any]]:
        """Returns this process's micro-batches of the optimiser batch that begins."""
        begin = self._step % self.args.steps_per_generation
        return self._buffered_inputs[begin : begin + steps]

    def _optimiser_batch(self, model: Any, pieces: list[dict[str, Any]]) -> Experience:
        """Returns the optimiser batch: the selected rows that are in these micro-batches of any process."""
        batch = self._batches[self.model.training]
        places = self._everyone.rows(torch.cat([piece[PLACE] for piece in pieces]))
        chosen = torch.isin(batch.extras[PLACE], places)
        whole = batch if chosen.all() else batch[chosen]
        if whole.advantage is None or not self.algorithm.objective.active_fields("full_batch_outputs"):
            return whole
        with torch.no_grad():
            evaluation = Evaluation.cat(
                [_padded(self._policy_evaluation(model, piece)[0], whole.mask.shape[1]) for piece in pieces]
            )
        evaluation = evaluation.mapped(lambda name, value: self._everyone.rows(value))
        order = places.argsort()
        full_batch = evaluation[order[torch.searchsorted(places[order], whole.extras[PLACE])]]
        return whole.replace(
            full_batch_evaluation=full_batch,
            **({"rollout_logp": full_batch.logp} if whole.rollout_logp is None else {}),
        )

    def _objective_loss(self, piece: Experience, evaluation: Evaluation) -> Loss:
        # Log-probabilities from before the update, if missing, are the current ones: there was no update in between.
        absent = {
            name: evaluation.logp.detach() for name in ("rollout_logp", "old_logp") if getattr(piece, name) is None
        }
        return self.algorithm.objective(piece.replace(**absent), evaluation)

    # The policy's evaluation ------------------------------------------------------------------------------------

    def _policy_evaluation(self, model: Any, inputs: dict[str, Any], rows: int | None = None) -> tuple[Evaluation, Any]:
        """Evaluates the policy on the completions of some rows, by TRL's own pass; also returns the router's part of
        the loss.

        rows: how many are read at a time.
        """
        if self.hidden_states is not None:
            self.hidden_states.start()
        logp, entropy, aux = self._get_per_token_logps_and_entropies(
            model,
            torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1),
            torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1),
            inputs["completion_ids"].shape[1],
            batch_size=rows,
            compute_entropy=True,
            compute_aux_loss=self.aux_loss_enabled,
            **{name: inputs.get(name) for name in SEEN},
        )
        fields: dict[str, Any] = {"logp": ops.wide(logp), "entropy": ops.wide(entropy)}
        if self.hidden_states is not None:
            fields |= self.hidden_states.evaluate(inputs["completion_ids"], decided(inputs), self.temperature)
        return Evaluation(support=self._support, **fields), (
            self.router_aux_loss_coef * aux if self.aux_loss_enabled else 0.0
        )

    @torch.no_grad()
    def _assess(self, output: dict[str, Any]) -> Evaluation:
        """Evaluates the policy on this process's rows before its update on them."""
        return self._policy_evaluation(self.model, output, self.args.per_device_train_batch_size)[0]

    @torch.no_grad()
    def _prompt_logp(self, output: dict[str, Any]) -> Tensor:
        """Returns the mean log-probability [b] of the tokens of each row's prompt, except the first; 0 for a prompt of
        one token."""
        ids, mask = output["prompt_ids"], output["prompt_mask"]
        logp, _, _ = self._get_per_token_logps_and_entropies(
            self.model, ids, mask, ids.shape[1] - 1, batch_size=self.args.per_device_train_batch_size
        )
        return ops.row_mean(ops.wide(logp), mask[:, 1:].bool() & mask[:, :-1].bool())

    # What is kept and logged ------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Tensor]:
        tensors = {f"algorithm.{k}": v for k, v in self.algorithm.state_dict().items()}
        if self.critic is not None:
            tensors |= {f"critic.{k}": v for k, v in self.critic.state_dict().items()}
        return tensors

    def _log_advantages(self, batch: Experience, rows: int) -> None:
        """Logs the method's advantages, a mean over decisions, with TRL's completions; 0 for rows left out."""
        mean = ops.row_mean(torch.where(batch.mask, batch.advantage, 0), batch.mask)
        row_means = mean.new_zeros(rows).index_copy(0, batch.extras[PLACE], mean)
        logged = self._logs["advantages"]
        for _ in range(min(rows, len(logged))):
            logged.pop()
        logged.extend(row_means.tolist())

    def _log_measured(self) -> None:
        """Logs the metrics of an optimiser batch: shares of the whole, so a sum over micro-batches and processes."""
        found = add_metrics(self._everyone.entries([add_metrics(self._measured)]))
        self._measured = []
        metrics = self._metrics["train" if self.model.training else "eval"]
        metrics["entropy"].append(found.pop("entropy") / max(found.pop("decisions"), 1.0))
        for name, value in found.items():
            metrics[f"polopt/{name}"].append(value)


def _padded(evaluation: Evaluation, width: int) -> Evaluation:
    """Pads an evaluation to the width of the process with the widest completions."""
    return evaluation.mapped(
        lambda name, value: F.pad(value, (0, width - value.shape[1])) if value.ndim == 2 else value
    )


def _behind(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
