"""Solvers of exact problems, matrix-free linear solvers, and implicit gradients through an inner optimisation."""

from polopt.solvers.bilevel import (
    BilevelDescent,
    DirectGradient,
    Hypergradient,
    ImplicitHypergradient,
    InnerSteps,
    MomentumStep,
    NormalisedMomentumStep,
    TrackedHypergradient,
)
from polopt.solvers.choices import (
    BellmanRegression,
    ChoiceEstimates,
    ChoiceLikelihood,
    ChoicePlanner,
    PessimisticValueIteration,
)
from polopt.solvers.implicit import implicit_gradient
from polopt.solvers.linear import ConjugateGradient, LinearSolver, Neumann
from polopt.solvers.mirror import (
    AveragedOpponent,
    HarmonicStepSize,
    Opponent,
    OwnMixture,
    PreferenceMirrorDescent,
    StepSize,
)
from polopt.solvers.preference_transfer import (
    GaussianTransferReward,
    PreferenceTransferSolver,
    TransferFindings,
    TransferReward,
    WeightedImitation,
    transferred_labels,
)
from polopt.solvers.regret import (
    DiscountedRegretSum,
    IterationWeight,
    LinearWeight,
    PositiveRegretSum,
    PowerWeight,
    RegretMatching,
    RegretMinimizer,
    RegretSum,
)
from polopt.solvers.solver import Solver
from polopt.solvers.transport import (
    GromovWasserstein,
    IndependentCoupling,
    gromov_wasserstein_cost,
    gromov_wasserstein_gradient,
    sinkhorn,
)

__all__ = [
    "AveragedOpponent",
    "BellmanRegression",
    "BilevelDescent",
    "ChoiceEstimates",
    "ChoiceLikelihood",
    "ChoicePlanner",
    "ConjugateGradient",
    "DirectGradient",
    "DiscountedRegretSum",
    "GaussianTransferReward",
    "GromovWasserstein",
    "HarmonicStepSize",
    "Hypergradient",
    "ImplicitHypergradient",
    "IndependentCoupling",
    "InnerSteps",
    "IterationWeight",
    "LinearSolver",
    "LinearWeight",
    "MomentumStep",
    "Neumann",
    "NormalisedMomentumStep",
    "Opponent",
    "OwnMixture",
    "PessimisticValueIteration",
    "PositiveRegretSum",
    "PowerWeight",
    "PreferenceMirrorDescent",
    "PreferenceTransferSolver",
    "RegretMatching",
    "RegretMinimizer",
    "RegretSum",
    "Solver",
    "StepSize",
    "TrackedHypergradient",
    "TransferFindings",
    "TransferReward",
    "WeightedImitation",
    "gromov_wasserstein_cost",
    "gromov_wasserstein_gradient",
    "implicit_gradient",
    "sinkhorn",
    "transferred_labels",
]
