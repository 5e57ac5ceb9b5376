"""Exactly solvable problems: bias, variance, entropy and learning as numbers."""

from polopt.lab.gaussian import ChainSource, GaussianChain
from polopt.lab.measure import BiasVariance, LeafGradient, bias_variance, expectation, learning, train, training
from polopt.lab.policy import LinearPolicy, TabularPolicy, TinyTransformer
from polopt.lab.source import TreeSource
from polopt.lab.teacher import HintedPolicy, TreeContrast, TreeTeacher, tree_teacher
from polopt.lab.tree import TokenTree, TreePolicy, flat_gradient

__all__ = [
    "BiasVariance",
    "ChainSource",
    "GaussianChain",
    "HintedPolicy",
    "LeafGradient",
    "LinearPolicy",
    "TabularPolicy",
    "TinyTransformer",
    "TokenTree",
    "TreeContrast",
    "TreePolicy",
    "TreeSource",
    "TreeTeacher",
    "bias_variance",
    "expectation",
    "flat_gradient",
    "learning",
    "train",
    "training",
    "tree_teacher",
]
