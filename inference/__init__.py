"""How it is computed: hand-derived updates, reference engines, checks and the comparison."""
