"""The files of a FlashInfer-Trace folder, and inputs from seeds."""
