"""Training (section 5 of the paper): batches, loss, schedule, steps and checkpoints."""
