"""FL-GAN and FeGAN: clients train both models, and the server averages them."""
