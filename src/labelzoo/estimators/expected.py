"""The checks of scikit-learn that a `LabelClassifier` fails on purpose, each with its reason."""

EXPECTED_FAILED_CHECKS: dict[str, str] = {
    "check_classifiers_multilabel_output_format_predict": (
        "predict returns int8 whatever the dtype of Y: one type for every model, and an eighth of the memory"
    ),
    "check_supervised_y_2d": (
        "a column (rows, 1) is one label of 0 and 1, and a third value in it an error; classes are a vector"
    ),
}
"""Name of a check to the reason, as ``check_estimator(..., expected_failed_checks=...)`` takes them."""
