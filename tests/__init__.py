"""polopt's tests: a package, so that no installed one of the same name is found first."""
