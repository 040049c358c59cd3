"""The same learner behind other libraries' doors; each door imports its library alone."""
