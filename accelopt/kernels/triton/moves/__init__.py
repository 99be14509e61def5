"""Source-to-source changes of Triton solutions: knobs that are found in the text, and structure.

`propose.proposals(source)` lists what can be done; each proposal is whole new source with a
sentence. A move must not compute something else on purpose, but it does not prove that it does
not: the referee judges every result.
"""
