"""Translation by beam search (section 6.1 of the paper): engines, bundles and formats."""
