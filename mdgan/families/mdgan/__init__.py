"""MD-GAN (Hardy et al. 2019): one generator at the server, a discriminator at every worker."""
