"""The parent's side: the order of trials, what replies must be like, the verdict."""
