"""The checks of scikit-learn that a `LabelClassifier` fails on purpose, each with its reason."""

EXPECTED_FAILED_CHECKS: dict[str, str] = {
    "check_classifiers_multilabel_output_format_predict": (
        "predict returns int8 whatever the dtype of Y: one type for every model, and an eighth of the memory"
    ),
}
"""Name of a check to the reason, as ``check_estimator(..., expected_failed_checks=...)`` takes them."""
