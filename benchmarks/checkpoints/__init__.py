"""What saving checkpoints costs a training."""
