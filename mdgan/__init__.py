"""Train one GAN over data that cannot be moved (MD-GAN, Hardy et al. 2019)."""

__version__ = "0.5.0"
