"""Steps of the lab's small training runs, each on a whole batch."""

from __future__ import annotations

import torch

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.lab.teacher import TreeContrast, TreeTeacher
from polopt.lab.tree import TreePolicy
from polopt.stepping import StepHooks
from polopt.updates import BatchLoss, PlainSettings, Stepper


class Descent(StepHooks):
    """Steps of gradient descent, each on a whole batch. Of `TreeSource` it has all fields but a teacher's signal."""

    def __init__(
        self,
        algorithm: Algorithm,
        policy: TreePolicy,
        rate: float,
        epochs: int,
        reference: TreePolicy | None,
        previous: TreePolicy | None,
        teacher: TreeTeacher | TreeContrast | None,
    ) -> None:
        self.algorithm, self.policy, self.rate, self.epochs = algorithm, policy, rate, epochs
        self.reference, self.previous, self.teacher = reference, previous, teacher
        self.parameters = list(policy.parameters())
        self.optimiser: torch.optim.Optimizer | None = None
        self.stepper = None
        if algorithm.update.loop_capabilities:
            self.stepper = algorithm.update.begin(self.parameters, PlainSettings(lr=rate))

    def provide(self, experience: Experience) -> Experience:
        fields = self.algorithm.active_fields("reads")
        if self.reference is not None and "ref_logp" in fields and experience.ref_logp is None:
            experience = experience.replace(ref_logp=self.reference.evaluate(experience).logp.detach())
        teacher = self.teacher
        return experience if teacher is None else teacher.teach(experience, teacher.spec.signals & fields)

    @torch.no_grad()
    def begin_update(self, experience: Experience, chosen: Experience) -> None:
        if self.previous is not None:
            for past, present in zip(self.previous.parameters(), self.parameters, strict=True):
                past.copy_(present)

    def update(self, experience: Experience) -> dict[str, float]:
        if self.stepper is not None:
            return self._by_rule(self.stepper, experience)
        for _ in range(self.epochs):
            evaluation = self.policy.evaluate(experience, self.algorithm.objective.active_fields("policy_outputs"))
            loss = self.algorithm.objective(experience, evaluation).loss
            gradients = torch.autograd.grad(loss, self.parameters, allow_unused=True)
            with torch.no_grad():
                for p, gradient in zip(self.parameters, gradients, strict=True):
                    p.grad = gradient
                    if self.optimiser is None and gradient is not None:
                        p -= self.rate * gradient
            if self.optimiser is not None:
                self.optimiser.step()
        return {}

    def _by_rule(self, stepper: Stepper, experience: Experience) -> dict[str, float]:
        """Takes the rule's step on the batch, and its steps on the gradient of the whole batch in each epoch."""
        objective = self.algorithm.objective
        outputs = objective.active_fields("policy_outputs")
        loss = BatchLoss(self.policy, objective, lambda piece: self.policy.evaluate(piece, outputs), [experience])
        record = stepper.step_on_batch(loss) if stepper.reads_batch else {}
        for _ in range(self.epochs if stepper.stepped else 0):
            for p, gradient in zip(stepper.stepped, loss.gradient(stepper.stepped), strict=True):
                p.grad = gradient
            stepper.step()
        return record

    def end_update(self) -> None:
        if self.teacher is not None:
            self.teacher.follow()
        if self.reference is not None:
            self.algorithm.update_reference(self.reference.parameters(), self.parameters)
