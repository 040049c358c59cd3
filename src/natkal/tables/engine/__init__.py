"""Numbers through the learner: predict, learn, resize."""
