"""The scikit-learn face: a model of the zoo as a classifier that pipelines, searches and clones know."""

from labelzoo.estimators.classifier import LabelClassifier, available
from labelzoo.estimators.expected import EXPECTED_FAILED_CHECKS

__all__ = ["EXPECTED_FAILED_CHECKS", "LabelClassifier", "available"]
