"""ParaGAN (Shi et al. 2024): every worker trains both models, and gradients are averaged."""
