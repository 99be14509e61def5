"""A lowered kernel as a change of its author's module: names, comments, numbers and the rest of the
file stay, where what they speak of does."""
